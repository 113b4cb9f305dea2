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

from tensortide.errors import MetricError
from tensortide.measures import deeplite
from tensortide.measures.backend import BACKENDS
from tensortide.measures.compat.display import Column, compared
from tensortide.measures.compat.sources import SOURCES, Asked
from tensortide.measures.deeplite import (
    Comparative,
    ComputeComplexity,
    ComputeEvalMetric,
    ComputeExecutionTime,
    ComputeFlops,
    DefaultDisplay,
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
from tests.measures.compat.models import ResNet18, SmallNetwork, small_test_net

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")


FOOTPRINT = 3 * 32 * 32 + 2 * 32 * 32 * 32 + 2 * 32 * 16 * 16
"""Elements of the inputs of the small net, and of what its layers return: a convolution, ReLU, pooling, flattened."""


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


@pytest.mark.slow
def test_the_footprint_is_the_published_one_with_and_without_the_weights(logged: io.StringIO) -> None:
    profiler = profiler_of(ResNet18())
    profiler.register_profiler_function(ComputeComplexity())
    profiler.compute_network_status(include_weights=True, print_mode="info")
    lines = logged.getvalue().strip().splitlines()
    assert lines[1:6] == [
        f"|{'Deeplite Profiler':^63}|",
        f"+{'-' * 41}+{'-' * 21}+",
        "|             Param Name (Original Model) |                Value|",
        "|                   Backend: TorchBackend |                     |",
        f"+{'-' * 41}+{'-' * 21}+",
    ]
    assert lines[6:] == [
        "|                         Model Size (MB) |              42.8014|",
        "|     Computational Complexity (GigaMACs) |               0.5573|",
        "|             Total Parameters (Millions) |              11.2201|",
        "|                   Memory Footprint (MB) |              48.4389|",
        f"+{'-' * 41}+{'-' * 21}+",
    ]
    alone = profiler.compute_status("memory_footprint", include_weights=False)
    assert alone == pytest.approx(48.4389 - 42.8014, abs=1e-4)
    assert profiler.compute_status("memory_footprint", batch_size=3) == pytest.approx(48.4389, abs=5e-5)
    rows = profiler.status_get("layerwise_data")
    assert len(rows) == 68
    assert rows[0]["index"] == "0_aten::_convolution"


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
    assert lines["Memory Footprint"] == "0.01x"
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
    text = DefaultDisplay().table([Column("a model with a name that is far too long", "TorchBackend", {key.NAME: key})])
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


def test_tables_go_to_the_logger_that_is_set() -> None:
    text = io.StringIO()
    logger = logging.Logger("own", logging.INFO)
    logger.addHandler(logging.StreamHandler(text))
    before = deeplite.getLogger().to
    deeplite.setLogger(logger)
    try:
        profiler_of(small_test_net()).display_status(print_mode="info")
        deeplite.getLogger("any").info("said")
    finally:
        deeplite.setLogger(before)
    assert "Param Name (Original Model)" in text.getvalue()
    assert text.getvalue().endswith("said\n")


def test_a_table_is_printed_while_nobody_has_configured_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    profiler = profiler_of(small_test_net())
    profiler.display_status(print_mode="debug")
    assert capsys.readouterr().out == ""
    profiler.display_status(print_mode="info")
    assert "Param Name (Original Model)" in capsys.readouterr().out
    own = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(own)])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    profiler.display_status(print_mode="info")
    assert "Param Name (Original Model)" in own.getvalue()
    assert capsys.readouterr().out == ""


def test_a_clone_may_have_a_name_and_columns_of_one_name_are_told_apart(logged: io.StringIO) -> None:
    profiler = profiler_of(small_test_net())
    profiler.display_status(profiler.clone(name="Half"), print_mode="info")
    assert "Value (Original Model)|" in logged.getvalue()
    assert "Value (Half)|" in logged.getvalue()
    profiler.display_status(profiler.clone(), print_mode="info")
    assert "First (Original Model)| " in logged.getvalue()
    assert "Second (Original Model)|" in logged.getvalue()


def test_a_warning_names_the_line_of_the_script() -> None:
    profiler = profiler_of(small_test_net())
    profiler.register_profiler_function(ComputeComplexity())
    with pytest.warns(UserWarning, match="replaces") as told:
        profiler.register_profiler_function(deeplite.ComputeLayerwiseSummary())
    assert {one.filename for one in told} == {__file__}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ["Model Size", "Computational Complexity", "Total Parameters", "Eval: own"]),
        ({"order": ("flops", "own")}, ["Computational Complexity", "Eval: own", "Total Parameters", "Model Size"]),
        ({"order": ["total_params"], "include_leftovers": False}, ["Total Parameters"]),
        ({"exclude": "flops"}, ["Model Size", "Total Parameters", "Eval: own"]),
    ],
)
def test_rows_are_ordered_and_left_out(options: dict[str, Any], shown: list[str]) -> None:
    keys = [deeplite.TotalParams(), Flops(), deeplite.ModelSize(), deeplite.EvalMetric()]
    keys[3].NAME, keys[3].TITLE = "own", "Eval: own"
    display = DefaultDisplay(**options)
    assert [key.friendly_name() for key in display.rows({key.NAME: key for key in keys})] == shown


def test_a_value_that_was_not_computed_formats_like_a_number() -> None:
    value = deeplite.NotComputedValue()
    assert f"|{value:>20.4f}|{value!r}" == "|       <NotComputed>|<NotComputed>"


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


def test_every_framework_has_every_figure() -> None:
    assert {*SOURCES} == {*BACKENDS}
    named = {key.NAME for key in ComputeComplexity.keys}
    made = small_test_net(), deeplite.TFLiteProfiler((truths.folder() / "tflite/mlp.tflite").read_bytes(), {}).model
    for name, model in zip(("torch", "tflite"), made, strict=True):
        assert {*SOURCES[name](Asked(model, None, 1, True))} == named


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
