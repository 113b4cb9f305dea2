"""Calls of composite ops: recorded with the ops that they run, and nothing else is recorded otherwise for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from tensortide import capture, save
from tensortide.errors import CaptureError
from tensortide.graph import OUTSIDE, Graph, load
from tensortide.recorder import building, composites
from tensortide.recorder.composites import composites_left_out
from tensortide.recorder.torch_compat import includes_key, key_above_autograd
from tests.marks import some_slow
from tests.recorder.workloads import ALL, captured

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")


COMPOSED = {"adamw", "autocast", "checkpoint", "second-order", "custom-function", "attention", "inference-mode"}
"""Workloads that differ in the composite ops of their steps, or in how these run."""


def network() -> nn.Module:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(144, 5)
    return nn.Sequential(*layers).eval()


def calls(graph: Graph) -> list[tuple[str, int, str, list[str]]]:
    """Each composite call: its op, the call around it, its module, and the ops that it runs."""
    assert graph.composites is not None
    names = [graph.calls[op.call].op for op in graph.ops]
    return [
        (call.op.removeprefix("aten."), run.parent, graph.module_path(run.module), names[run.start : run.stop])
        for call, run in graph.composites
    ]


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_each_call_has_its_ops_its_module_and_the_call_around_it(real: bool) -> None:
    graph = capture(network(), torch.rand(2, 3, 8, 8), real=real)
    normed = ["aten.empty.memory_format", "aten.native_batch_norm.default"]
    assert calls(graph) == [
        ("conv2d.default", OUTSIDE, "0", ["aten.convolution.default"]),
        ("batch_norm.default", OUTSIDE, "1", normed),
        ("_batch_norm_impl_index.default", 1, "1", normed),
        ("dropout.default", OUTSIDE, "3", []),
        ("flatten.using_ints", OUTSIDE, "4", ["aten.view.default"]),
        ("linear.default", OUTSIDE, "5", ["aten.t.default", "aten.addmm.default"]),
    ]


def test_tensors_of_a_call_are_those_of_the_graph() -> None:
    graph = capture(network(), torch.rand(2, 3, 8, 8))
    assert graph.composites is not None
    call, linear = list(graph.composites)[-1]
    assert [graph.tensors[t].shape for t in (*linear.inputs, *linear.outputs)] == [(2, 144), (5, 144), (5,), (2, 5)]
    assert [name for name, _ in call.arguments] == ["input", "weight", "bias"]
    assert {graph.storages[graph.tensors[t].storage].name for t in linear.inputs[1:]} == {"5.weight", "5.bias"}


def test_a_call_inside_of_a_kernel_is_none_of_the_step() -> None:
    def step() -> Callable[[], Any]:
        x = torch.rand(4, 4, requires_grad=True)
        return lambda: torch.linalg.norm(x.softmax(-1)).backward()

    graph = capture(step)
    assert graph.composites is not None
    assert [run.stop for run in graph.composites.runs] == sorted(run.stop for run in graph.composites.runs)
    assert {call.op for call, _ in graph.composites} >= {"aten.softmax.int", "aten.linalg_norm.default"}


@pytest.mark.parametrize("name", some_slow(ALL, ALL.keys() - COMPOSED))
def test_all_else_is_recorded_as_without_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, settings = ALL[name]
    seen = captured(name)
    monkeypatch.setattr(building, "composites_recorded", lambda *args, **options: contextlib.nullcontext())
    unseen = capture(workload, hyperparameters=settings)
    assert seen.composites is not None
    assert unseen.composites is None
    assert replace(seen, composites=None) == unseen


def test_nothing_is_included_after_a_step_also_one_that_fails() -> None:
    keys_of: Any = torch._ops._compute_keyset
    capture(network(), torch.rand(2, 3, 8, 8))
    with pytest.raises(CaptureError):
        capture(network(), torch.rand(2, 4, 8, 8), real=False)
    assert not includes_key(key_above_autograd)
    assert torch._ops._compute_keyset is keys_of


def test_there_are_none_where_another_package_has_taken_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*args: object, **options: object) -> None:
        raise RuntimeError("Tried to register multiple backend fallbacks for the same dispatch key DeferredInit")

    monkeypatch.setattr(torch.library.Library, "fallback", taken)
    monkeypatch.setattr(composites, "_handled", composites._handled.__wrapped__)
    assert capture(network(), torch.rand(2, 3, 8, 8)).composites is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler, as it is imported
def test_a_compiled_step_has_none() -> None:
    assert capture(network(), torch.rand(2, 3, 8, 8), compiled=True).composites is None


@pytest.mark.parametrize("name", ["adamw", "checkpoint"])
def test_they_are_in_the_file(name: str, tmp_path: Path) -> None:
    graph = captured(name)
    save(graph, tmp_path / "g.tide")
    assert load(tmp_path / "g.tide").composites == graph.composites


def test_calls_in_transformed_functions_are_left_out_or_consistent() -> None:
    def step() -> Callable[[], Any]:
        x, w = torch.rand(3, 4), torch.rand(5, 4)
        return lambda: torch.func.vmap(lambda row: torch.nn.functional.linear(row, w))(x)

    capture(step)  # validated as it is built


NUMBERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a number in place of a tensor": lambda x: x.true_divide(2) + torch.multiply(x, 0.5),
    "of a scalar": lambda x: x.sum().true_divide(2),
    "masked": lambda x: torch.where(x > 0.5, x, 0.5),
    "transformed": torch.func.grad(lambda y: torch.nn.functional.silu(y).sum()),
    "in place": lambda x: x.clone().__setitem__(0, 1.0),
}


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize("name", NUMBERS)
def test_arguments_reach_the_op_as_they_are(name: str, real: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def workload() -> Callable[[], Any]:
        x = torch.rand(4, 4)
        return lambda: NUMBERS[name](x)

    seen = capture(workload, real=real)
    monkeypatch.setattr(building, "composites_recorded", lambda *args, **options: contextlib.nullcontext())
    assert replace(seen, composites=None) == capture(workload, real=real)


def test_calls_are_left_out_where_the_ops_alone_count() -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)

    def by_one_line() -> Graph:
        return capture(model, inputs)

    with composites_left_out():
        without = by_one_line()
    recorded = by_one_line()
    assert without.composites is None
    assert recorded.composites is not None
    assert without == replace(recorded, composites=None)
