"""Higher-order ops: loops, branches, wrappers and vmap, from a file and from memory alike."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.cost import count
from tensortide.errors import UnknownCost, WorkloadError
from tensortide.graph import Graph, unrolled
from tensortide.graph.trips import guessed_trips
from tests.importers.exported.archives import macs, opened, saved
from tests.marks import some_slow

HIGHER: Any = torch._higher_order_ops
Forward = Callable[..., Any]


class Model(nn.Module):
    """A linear layer ``w`` from 6 to 6 features, and a forward pass that uses it."""

    def __init__(self, run: Forward) -> None:
        super().__init__()
        self.w, self.run = nn.Linear(6, 6), run
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.run(self, *inputs)


@functools.cache
def exported(run: Forward, *inputs: torch.Tensor, decomposed: bool = False) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of what it uses itself
        program = torch.export.export(Model(run), inputs)
        return program.run_decompositions() if decomposed else program


def scanned(model: Model, h: torch.Tensor, xs: torch.Tensor) -> Any:
    def step(carry: torch.Tensor, x: torch.Tensor) -> Any:
        new = torch.tanh(model.w(carry) + x)
        return new, new * 2

    return HIGHER.scan(step, h, xs)


def looped(model: Model, i: torch.Tensor, x: torch.Tensor) -> Any:
    return HIGHER.while_loop(lambda i, _: i < 9, lambda i, x: (i + 1, model.w(x)), (i, x))


def mapped(model: Model, xs: torch.Tensor) -> Any:
    return HIGHER.map(lambda x: model.w(x).relu(), xs)


def batched(model: Model, xs: torch.Tensor) -> Any:
    return torch.vmap(lambda x: model.w(x).relu() @ model.w.weight)(xs)


def switched(model: Model, x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = model.w(x)
    with torch.autocast("cpu", torch.bfloat16):
        return y + model.w(x)


H, XS, X = torch.randn(3, 6), torch.randn(5, 3, 6), torch.randn(3, 6)
LINEAR = 3 * 6 * 6
LOOPS: dict[str, tuple[Forward, tuple[torch.Tensor, ...], int]] = {
    "scan": (scanned, (H, XS), 5 * LINEAR),
    "map_impl": (mapped, (XS,), 5 * LINEAR),
    "_vmap_increment_nesting": (batched, (XS,), 2 * 5 * LINEAR),
}


def both(program: torch.export.ExportedProgram, path: Path) -> Graph:
    """The Graph of a program in memory, which is the one of its file."""
    graph, of_file = opened(program), opened(saved(program, path))
    assert [op.name for op in graph] == [op.name for op in of_file]
    assert count(graph).total == count(of_file).total
    assert [op.module for op in graph] == [op.module for op in of_file]
    return graph


@pytest.mark.parametrize("name", some_slow(LOOPS, {"map_impl", "scan"}))
def test_a_loop_of_known_length_counts_its_body_so_often(tmp_path: Path, name: str) -> None:
    run, inputs, expected = LOOPS[name]
    graph = both(exported(run, *inputs), tmp_path / "loop.pt2")
    assert [(loop.name, loop.trips, loop.assumed) for loop in graph.loops] == [(name, 5, False)]
    assert count(graph).total.macs == expected
    assert expected == count(tensortide.capture(Model(run), inputs)).total.macs


@pytest.mark.parametrize("run", [scanned, batched])
def test_loops_written_out_do_the_same_work_and_have_memory_over_time(run: Forward) -> None:
    inputs = (H, XS) if run is scanned else (XS,)
    graph = opened(exported(run, *inputs))
    straight = unrolled(graph)
    assert count(straight).total.macs == count(graph).total.macs
    captured = tensortide.capture(Model(run), inputs)
    assert tensortide.timeline(straight).peak_bytes <= 2 * tensortide.timeline(captured).peak_bytes


def test_a_loop_that_data_end_says_so_and_takes_a_count(tmp_path: Path) -> None:
    program = exported(looped, torch.tensor(0), X)
    graph = both(program, tmp_path / "while.pt2")
    assert graph.loops[0].assumed
    assert guessed_trips(graph) == {"while_loop": 1}
    assert count(graph).total.macs == LINEAR
    given = opened(tmp_path / "while.pt2", hyperparameters={"trips.while_loop": 9})
    assert not given.loops[0].assumed
    assert count(given).total.macs == 9 * LINEAR
    with pytest.raises(WorkloadError, match="no loop 'while'; 'while_loop' is meant"):
        opened(program, hyperparameters={"trips.while": 9})


def counted(model: Model, x: torch.Tensor) -> Any:
    """A product while one counter rises, by another that stays, and a second one falls."""
    start, by, far = (torch.full((), number, dtype=torch.int64) for number in (2, 3, 40))
    return HIGHER.while_loop(
        lambda i, by, far, _: (i < 17) & (far >= -30), lambda i, by, far, x: (i + by, by.clone(), far - 7, model.w(x)),
        (start, by, far, x),
    )  # fmt: skip


def test_a_loop_of_counters_from_numbers_of_the_program_is_counted_as_it_runs(tmp_path: Path) -> None:
    program = exported(counted, X)
    graph = both(program, tmp_path / "counted.pt2")
    last, *_ = program.module()(X)
    assert [(loop.trips, loop.assumed) for loop in graph.loops] == [((int(last) - 2) // 3, False)]
    assert count(graph, strict=True).total.macs == 5 * LINEAR
    with pytest.raises(WorkloadError, match="runs 5 times: that is known"):
        opened(program, hyperparameters={"trips.while_loop": 9})


def changed(model: Model, x: torch.Tensor) -> Any:
    """A counter whose start a view of a copy changes."""
    start = torch.zeros((), dtype=torch.int64).clone()
    start.view(1).fill_(3)
    return HIGHER.while_loop(lambda i, _: i < 5, lambda i, x: (i + 1, model.w(x)), (start, x))


def test_a_counter_whose_start_is_changed_is_no_number_of_the_program(tmp_path: Path) -> None:
    graph = both(exported(changed, X), tmp_path / "changed.pt2")
    assert [(loop.trips, loop.assumed) for loop in graph.loops] == [(1, True)]


def test_wrappers_are_their_bodies(tmp_path: Path) -> None:
    graph = both(exported(switched, X), tmp_path / "modes.pt2")
    assert count(graph).total.macs == 2 * LINEAR


def test_buffers_that_a_program_writes_are_written(tmp_path: Path) -> None:
    def run(model: Model, x: torch.Tensor) -> Any:
        model.get_buffer("seen").add_(x.sum(0))
        return model.w(x)

    for decomposed in (False, True):
        graph = both(exported(run, X, decomposed=decomposed), tmp_path / f"{decomposed}.pt2")
        (seen,) = (entry.tensor for entry in graph.named if entry.name == "seen")
        written = {storage for op in graph for storage in op.written_storages}
        assert graph.tensors[seen].storage in written


def test_ops_that_write_in_place_take_no_memory(tmp_path: Path) -> None:
    def run(model: Model, x: torch.Tensor) -> Any:
        return model.w(x).relu_().add_(1).view(-1)[3:]

    graph = both(exported(run, X), tmp_path / "inplace.pt2")
    made = [storage for storage in graph.storages if storage.birth is not None]
    assert len(made) == 1
    assert [len(op.written_storages) for op in graph if op.name.split(".")[1].endswith("_")] == [1, 1]
    assert graph[len(graph) - 1].outputs[0].offset == 3


def test_a_size_that_data_decide_is_at_most_what_it_is_selected_from(tmp_path: Path) -> None:
    program = exported(lambda model, x: model.w(x[x.sum(1).nonzero().squeeze(1)]), X)
    graph = both(program, tmp_path / "rows.pt2")
    assert count(graph).total.macs == LINEAR
    assert "u0 = 3, the most that it can be" in graph.meta.decisive[0]
    assert macs(tmp_path / "rows.pt2", hyperparameters={"u0": 1}) == LINEAR // 3


@torch.library.custom_op("exported_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """An op without a rule."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("exported_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor, by: int) -> None:
    """An op that writes its argument."""
    x.add_(by)


@bump.register_fake
def _(x: torch.Tensor, by: int) -> None:
    del x, by


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_op_that_nobody_knows_is_unknown(tmp_path: Path, decomposed: bool) -> None:
    def run(model: Model, x: torch.Tensor) -> Any:
        y = twice(model.w(x)) + 0
        bump(y, 3)
        return y

    graph = both(exported(run, X, decomposed=decomposed), tmp_path / "custom.pt2")
    counted = count(graph)
    assert {op.name for op, found in zip(graph, counted.costs, strict=True) if found.cost is None} == {
        "exported_test.twice.default",
        "exported_test.bump.default",
    }
    with pytest.raises(UnknownCost, match="exported_test"):
        count(graph, strict=True)
