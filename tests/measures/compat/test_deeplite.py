"""Scripts written for deeplite-profiler run with their imports changed alone; its rules and displays hold."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.measures import deeplite
from tensortide.measures.compat.keys import box, compared
from tensortide.measures.deeplite import (
    Comparative,
    ComputeComplexity,
    ComputeEvalMetric,
    ComputeExecutionTime,
    ComputeFlops,
    Device,
    Flops,
    ProfilerFunction,
    StatusKey,
    TorchDataLoader,
    TorchForwardPass,
    TorchProfiler,
    get_accuracy,
    get_missclass,
    get_topk,
)
from tensortide.recorder.torch_compat import key_above_autograd
from tests.measures.compat.models import ResNet18, SmallNetwork, small_test_net

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")


class Batches:
    """A loader that is no DataLoader: six images, the last batch smaller."""

    batch_size = 4

    def __init__(self, classes: int = 8192) -> None:
        torch.manual_seed(0)
        self.images, self.labels = torch.rand(6, 3, 32, 32), torch.randint(0, classes, (6,))

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self.images.split(4), self.labels.split(4), strict=True)

    def __len__(self) -> int:
        return 2


def profiler_of(model: nn.Module, name: str = "Original Model") -> TorchProfiler:
    data = TorchProfiler.enable_forward_pass_data_splits({"train": Batches(), "test": Batches()})
    return TorchProfiler(model, data, name=name)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged."""
    text = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(text)])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    return text


def test_a_script_runs(logged: io.StringIO) -> None:
    model = small_test_net()
    profiler = profiler_of(model)
    profiler.register_profiler_function(ComputeComplexity())
    profiler.register_profiler_function(ComputeExecutionTime())
    profiler.register_profiler_function(ComputeEvalMetric(get_missclass, "missclass", unit_name="%"))
    status = profiler.compute_network_status(
        batch_size=1, device=Device("CPU"), short_print=False, include_weights=True, print_mode="info"
    )
    figures = {key: status[key] for key in ("flops", "total_params", "model_size", "memory_footprint")}
    assert figures == {
        "flops": 0.002555904,
        "total_params": 0.002432,
        "model_size": 0.00927734375,
        "memory_footprint": 1.0,
    }
    assert status["execution_time"] > 0
    assert status["inference_time"] > 0
    assert 0 <= status["eval_metric"] <= 100
    assert len(status["layerwise_summary"].splitlines()) == 5
    assert "Memory Footprint (MB) |               1.0000|" in logged.getvalue()
    assert model.training
    other = profiler.clone(model=deepcopy(model))
    assert other.name == "Original Model"
    other.name = "Clone Model"
    other.compare(profiler, short_print=False, batch_size=1, device=Device.CPU, print_mode="info")
    assert other.status_get("flops") == profiler.status_get("flops")
    assert "Clone Model" in logged.getvalue()


def test_two_models_are_compared_as_there(logged: io.StringIO) -> None:
    one, other = profiler_of(ResNet18(), "ResNet-18"), profiler_of(SmallNetwork(), "small")
    for profiler in (one, other):
        profiler.register_profiler_function(ComputeComplexity())
    one.compare(other)
    lines = {line.split("|")[1].strip().split(" (")[0]: line.split("|")[2].strip() for line in boxed(logged.getvalue())}
    assert [lines[title] for title in ("Computational Complexity", "Total Parameters", "Model Size")] == [
        "0.01x",
        "0.00x",
        "0.00x",
    ]
    assert lines["Memory Footprint"] == "0.33x"
    assert {len(line) for line in logged.getvalue().splitlines() if line.startswith("|")} == {124}


def boxed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and line.count("|") == 5]


def test_the_status_is_read_and_written_as_there() -> None:
    profiler = profiler_of(small_test_net())
    profiler.register_profiler_function(ComputeFlops())
    assert [*profiler.status_keys()] == ["flops"]
    assert profiler.status_contains("flops")
    assert profiler.status_get("flops") is None
    with pytest.raises(ValueError, match=r"there is no status 'macs'; there are flops"):
        profiler.compute_status("macs")
    assert profiler.compute_status("flops", batch_size=2) == 0.005111808
    assert profiler.compute_status("flops", batch_size=1) == 0.002555904
    key = profiler.status_to_dict(to_value=False)["flops"]
    assert isinstance(key, Flops)
    assert (key.value, key.get_units()) == (0.002555904, "GigaMACs")
    profiler.load_from_dict({"flops": 2.5, "unknown": 1})
    assert dict(profiler.status_items()) == {"flops": 2.5}
    profiler.reset_status()
    assert [*profiler.status_values()] == [None]


def test_our_metrics_never_hold_those_values() -> None:
    profiler = profiler_of(small_test_net())
    profiler.register_profiler_function(ComputeComplexity())
    profiler.compute_network_status()
    assert all(name.startswith(deeplite.PREFIX) for name in profiler._profiler.to_dict())


class Widest(ProfilerFunction):
    """A function of a script's own."""

    class Key(StatusKey):
        NAME = "widest"

    def get_bounded_status_keys(self) -> StatusKey:
        return self.Key()

    def __call__(self, model: Any, data_splits: Any, factor: int = 1) -> int:
        return factor * max(int(parameter.numel()) for parameter in model.parameters())


class Variadic(ProfilerFunction):
    """A function whose options have no names."""

    def get_bounded_status_keys(self) -> StatusKey:
        return Widest.Key()


def test_functions_of_a_script_are_registered_by_its_rules() -> None:
    profiler = profiler_of(small_test_net())
    assert profiler.register_profiler_function(own := Widest(), override=True) is own
    assert profiler.compute_status("widest", factor=2, batch_size=7) == 2 * 32 * 3 * 25
    with pytest.raises(RuntimeError):
        profiler.register_profiler_function(Widest(), override=True)
    with pytest.raises(TypeError):
        profiler.register_profiler_function(Variadic())


def test_an_evaluation_has_secondary_results_and_weighs_every_sample_the_same() -> None:
    profiler = profiler_of(SmallNetwork())
    evaluation = ComputeEvalMetric(get_topk, "top-1", unit_name="%")
    evaluation.add_secondary_metric("top-5", comparative=Comparative.DIV)
    profiler.register_profiler_function(evaluation)
    found = profiler.compute_network_status(topk=(1, 5))
    assert found["eval_metric"] <= found["top-5"]
    data = TorchDataLoader(Batches(100))
    model = SmallNetwork()
    with torch.no_grad():
        right = model.eval()(data.native_dl.images).argmax(1) == data.native_dl.labels
    assert get_accuracy(model, data) == pytest.approx(100 * right.double().mean().item())


class Named(nn.Module):
    def forward(self, *, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": x + y}


class ByName(TorchForwardPass):
    """Arguments by name, which that tool cannot pass."""

    def extract_model_inputs(self, batch: Any) -> Any:
        return batch

    def create_random_model_inputs(self, batch_size: int) -> Any:
        return {"x": torch.rand(batch_size, 4), "y": torch.rand(batch_size, 4)}

    def model_call(self, model: Any, x: Any, device: Device) -> Any:
        return model(**x)


def test_what_is_not_available_there_is_none_with_a_reason() -> None:
    batches = [{"x": torch.rand(1, 4), "y": torch.rand(1, 4)}]
    forward = ByName(expecting_common_inputs=False)
    profiler = TorchProfiler(Named(), TorchProfiler.enable_forward_pass_data_splits({"train": batches}, forward))
    profiler.register_profiler_function(ComputeFlops())
    with pytest.warns(UserWarning, match="not available there: it passes inputs by position"):
        assert profiler.compute_status("flops") is None


def test_forward_passes_and_devices_are_checked_as_there() -> None:
    with pytest.raises(TypeError, match="needs a model_input_pattern"):
        TorchForwardPass()
    with pytest.raises(TypeError, match="need an own create_random_model_inputs"):
        TorchForwardPass((0, "_"), expecting_common_inputs=False)
    with pytest.raises(ValueError, match="unknown device"):
        Device("unknown device")
    data = TorchDataLoader(Batches(), TorchForwardPass((0, "_")))
    assert data.forward_pass.shapes() == ((3, 32, 32),)
    assert data.sample_random_forward(small_test_net(), 2).shape == (2, 8192)
    assert data.timed_forward(small_test_net()) > 0


@pytest.mark.parametrize(
    ("comparative", "x", "y", "shown"),
    [
        (Comparative.DIFF, 5, 2, "3.00"),
        (Comparative.DIV, 5, 2, "2.50x"),
        (Comparative.RECIPROCAL, 5, 2, "0.40x"),
        ("RECIPROCAL", 5, 4, "0.80x"),
        (Comparative.DIV, 5, 0, "INF"),
        (Comparative.NONE, 5, 2, "---"),
        (Comparative.DIFF, None, 2, "---"),
        ("coverage", 5, 2, "<Error Comparing>"),
    ],
)
def test_comparatives_are_displayed_as_there(comparative: Any, x: Any, y: Any, shown: str) -> None:
    keys = []
    for value in (x, y):
        key = deeplite.EvalMetric(comparative=comparative)
        key.value = value
        keys.append(key)
    assert compared(*keys) == shown


def test_long_names_do_not_overflow_the_box() -> None:
    key = deeplite.DynamicEvalMetric("a result with a name that is far too long for a column")
    text = box("title", ["a model with a name that is far too long"], [{key.NAME: key}])
    assert {len(line) for line in text.splitlines()} == {65}
    assert "<NotComputed>" in text


def test_units_that_are_scaled_apart_are_not_compared() -> None:
    giga, mega = Flops(), Flops()
    giga.value, mega.value = 0.5, 0.0005
    assert compared(giga, mega) == "<Unsupported units>"


def test_devices_are_named_in_any_case_and_unknown_levels_show_nothing() -> None:
    profiler = deeplite.TorchProfiler(nn.Sequential(nn.Linear(4, 4)), {"train": [(torch.randn(1, 4), 0)]})
    profiler.register_profiler_function(deeplite.ComputeExecutionTime())
    assert profiler.compute_network_status(device="CPU", print_mode="loud")["execution_time"] > 0
    with pytest.raises(ValueError, match="tpu"):
        deeplite.Device("tpu")
