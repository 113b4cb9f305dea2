"""Scripts written for deeplite-profiler run with their imports changed alone; its rules and displays hold."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.errors import MetricError
from tensortide.measures import deeplite
from tensortide.measures.backend import BACKENDS
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
from tests.importers import truths
from tests.measures.compat.models import Batches, SmallNetwork, profiler_of, small_test_net

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")


FOOTPRINT = 3 * 32 * 32 + 2 * 32 * 32 * 32 + 2 * 32 * 16 * 16
"""Elements of the inputs of the small net, and of what its layers return: a convolution, ReLU, pooling, flattened."""


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
        "memory_footprint": 4 * (FOOTPRINT + 2_432) / 2**20,
    }
    assert status["execution_time"] > 0
    assert status["inference_time"] > 0
    assert 0 <= status["eval_metric"] <= 100
    assert len(status["layerwise_summary"].splitlines()) == 5
    assert "Memory Footprint (MB) |               0.3335|" in logged.getvalue()
    assert model.training
    other = profiler.clone(model=deepcopy(model))
    assert other.name == "Original Model"
    other.name = "Clone Model"
    other.compare(profiler, short_print=False, batch_size=1, device=Device.CPU, print_mode="info")
    assert other.status_get("flops") == profiler.status_get("flops")
    assert "Clone Model" in logged.getvalue()


@pytest.mark.parametrize("hooked", [True, False])
def test_a_footprint_leaves_the_model_as_it_was(hooked: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    seen: list[Any] = []
    if hooked:
        model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    before = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    profiler = TorchProfiler(model, {"train": [(torch.rand(2, 4), 0)]})
    profiler.register_profiler_function(deeplite.ComputeSize())
    assert profiler.compute_status("memory_footprint") == 4 * (3 * 4 + 20) / 2**20
    assert profiler.compute_status("memory_footprint", include_weights=False, batch_size=3) == 4 * 3 * 4 / 2**20
    assert {name: len(module._forward_hooks) for name, module in model.named_modules()} == before
    assert all(module.training for module in model.modules())
    assert bool(seen) == hooked


def test_a_model_without_numbers_has_all_figures_but_the_footprint() -> None:
    with torch.device("meta"):
        model = nn.Linear(4, 4)
    profiler = TorchProfiler(model, {"train": [(torch.rand(2, 4), 0)]})
    profiler.register_profiler_function(ComputeComplexity())
    with pytest.warns(UserWarning, match="memory_footprint: the model is on the device 'meta', where it is not called"):
        known = profiler.compute_network_status()
    assert (known["flops"], known["total_params"], known["memory_footprint"]) == (16e-9, 20e-6, None)


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


class Singular(ProfilerFunction):
    """A function of an older script."""

    def get_bounded_status_key(self) -> StatusKey:
        return Widest.Key()

    def __call__(self, model: Any, data_splits: Any) -> int:
        return 7


class Silent(ProfilerFunction):
    """A function that does not say what it computes."""

    def __call__(self, model: Any, data_splits: Any) -> int:
        return 7


def test_a_function_says_its_keys_in_the_plural_or_the_singular() -> None:
    profiler = profiler_of(small_test_net())
    profiler.register_profiler_function(Singular())
    assert profiler.compute_status("widest") == 7
    for function in (ComputeFlops(), ComputeComplexity(), ComputeExecutionTime(), ComputeEvalMetric(get_topk)):
        plural, single = function.get_bounded_status_keys(), function.get_bounded_status_key()
        named = [[key.NAME for key in (keys if isinstance(keys, tuple) else (keys,))] for keys in (plural, single)]
        assert named[0] == named[1] != []
    with pytest.raises(
        NotImplementedError, match=r"Silent does not say what it computes: define get_bounded_status_keys"
    ):
        profiler.register_profiler_function(Silent())


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


def test_a_profiler_adds_a_secondary_result_to_its_evaluation() -> None:
    profiler = profiler_of(SmallNetwork())
    profiler.register_profiler_function(ComputeFlops())
    with pytest.raises(ValueError, match="there is no evaluation function yet"):
        profiler.add_secondary_eval_metric("top-5")
    profiler.register_profiler_function(ComputeEvalMetric(get_topk, "top-1", unit_name="%"), override=True)
    first = profiler.compute_status("eval_metric")
    profiler.add_secondary_eval_metric("top-5", description="five guesses")
    assert [*profiler.status_keys()] == ["flops", "eval_metric", "inference_time", "top-5"]
    assert profiler.status_get("eval_metric") == first <= profiler.compute_status("top-5")
    key = profiler.status_to_dict(to_value=False)["top-5"]
    assert isinstance(key, deeplite.Metric)
    assert (key.get_units(), key.description()) == ("%", "five guesses")


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


def test_devices_are_named_in_any_case_and_unknown_levels_show_nothing() -> None:
    profiler = deeplite.TorchProfiler(nn.Sequential(nn.Linear(4, 4)), {"train": [(torch.randn(1, 4), 0)]})
    profiler.register_profiler_function(deeplite.ComputeExecutionTime())
    assert profiler.compute_network_status(device="CPU", print_mode="loud")["execution_time"] > 0
    with pytest.raises(ValueError, match="tpu"):
        deeplite.Device("tpu")


def test_a_warning_names_the_line_of_the_script() -> None:
    profiler = profiler_of(small_test_net())
    profiler.register_profiler_function(ComputeComplexity())
    with pytest.warns(UserWarning, match="replaces") as told:
        profiler.register_profiler_function(deeplite.ComputeLayerwiseSummary())
    assert {one.filename for one in told} == {__file__}


def test_figures_need_data_to_call_the_model_with() -> None:
    profiler = TorchProfiler(small_test_net(), {"test": Batches()})
    profiler.register_profiler_function(ComputeFlops())
    with pytest.raises(MetricError, match="there is no data split 'train', whose batches random inputs are like"):
        profiler.compute_status("flops")


def test_samplers_make_tensors_like_those_of_a_batch() -> None:
    sampler = deeplite.TensorSampler((torch.rand(2, 3, 4), {"ids": torch.tensor([[1, 5], [2, 3]])}))
    assert sampler.get_flat_shapes_tuple() == ((3, 4), (2,))
    images, named = sampler.create_random_tensors(7)
    assert (images.shape, named["ids"].shape, named["ids"].dtype) == ((7, 3, 4), (7, 2), torch.int64)
    assert set(named["ids"].flatten().tolist()) <= {1, 2, 3, 4, 5}


class Loss:
    """A loss of a model and a batch, which is told the device."""

    device: Any = None

    def to_device(self, device: Device) -> None:
        self.device = device

    def __call__(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        assert not model.training
        x, y = batch
        return {"first": (model(x)[:, 0] - y).abs().mean(), "second": y.double().mean()}


def test_a_mean_loss_weighs_every_sample_the_same() -> None:
    model, loss, data = nn.Linear(4, 2), Loss(), [(torch.rand(n, 4), torch.arange(n)) for n in (4, 1)]
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    with torch.no_grad():
        wanted = (model(x)[:, 0] - y).abs().mean() + y.double().mean()
    assert deeplite.EvalLossFunction(loss)(model, data) == pytest.approx(wanted.item())
    assert loss.device is Device.CPU
    profiler = TorchProfiler(model, {"test": data})
    profiler.register_profiler_function(ComputeEvalMetric(deeplite.EvalLossFunction(loss)))
    assert profiler.compute_status("eval_metric") == pytest.approx(wanted.item())
    with pytest.raises(MetricError, match="no samples to evaluate"):
        deeplite.EvalLossFunction(loss)(model, [])


def test_every_figure_is_defined_for_every_framework() -> None:
    assert [{*key.BY} for key in ComputeComplexity.keys] == [{*BACKENDS}] * len(ComputeComplexity.keys)


@pytest.mark.parametrize("name", truths.named("tflite"))
def test_a_flat_buffer_has_figures_without_tensorflow(name: str) -> None:
    content = (truths.folder() / f"{name}.tflite").read_bytes()
    profiler = deeplite.TFLiteProfiler(content, {})
    for function in (ComputeFlops(), deeplite.ComputeSize(), deeplite.ComputeLayerwiseSummary()):
        profiler.register_profiler_function(function)
    known = profiler.compute_network_status()
    assert known["flops"] == 2 * truths.truth()[name]["macs"] / 1e9
    assert known["model_size"] == len(content) / 1e6
    assert known["layerwise_summary"].startswith("op\toutput_shape\ntflite.")
    with pytest.raises(MetricError, match="flops: ComputeFlops failed: the model: "):
        profiler.clone(model=content[:64]).compute_status("flops")
