"""Bounds as expressions: they hold at other sizes than those they were found at."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide import capture, footprint
from tensortide.errors import PlanError
from tensortide.expr import Expr, compiled, constant, parse, sized, symbol
from tensortide.graph import Graph
from tensortide.graph.model import Loop
from tensortide.plans.order.cuts import unavoidable
from tensortide.plans.order.minimal import bounds_of, minimal_bounds, sure_bounds
from tensortide.plans.order.problem import problem
from tests.graphs import Builder, graphs
from tests.plans.dags import random_dag, smallest_peak

A, B = symbol("a"), symbol("b")
SIZES = st.lists(st.sampled_from([A, B, A * B, 3 * A + 1, 7 * B, constant(20)]), min_size=60, max_size=60)
SETTINGS = st.fixed_dictionaries({"a": st.integers(1, 50), "b": st.integers(1, 50)})


def with_sizes(graph: Graph, sizes: list[Expr], at: dict[str, int]) -> Graph:
    """``graph`` with ``sizes`` for its storages, worth what they are at the settings ``at``."""
    values = compiled(sizes)(at)
    storages = [
        msgspec.structs.replace(storage, nbytes=sized(size, int(value)))
        for storage, size, value in zip(graph.storages, sizes, values, strict=False)
    ]
    return msgspec.structs.replace(graph, storages=tuple(storages))


@given(graphs(max_ops=8) | st.builds(random_dag, st.integers(0, 10**6), st.integers(0, 12)), SIZES, SETTINGS, SETTINGS)
def test_they_hold_at_other_sizes(graph: Graph, sizes: list[Expr], at: dict[str, int], other: dict[str, int]) -> None:
    here, there = with_sizes(graph, sizes, at), with_sizes(graph, sizes, other)
    formulas = minimal_bounds(here, device="cpu" if len(graph) else None)
    found = footprint(here)
    lower, upper = compiled(formulas)(at)
    assert lower <= found.lower_bytes
    assert upper == found.upper_bytes
    lower, upper = compiled(formulas)(other)
    assert lower <= smallest_peak(problem(there, "cpu")) <= upper


@given(graphs(max_ops=8) | st.builds(random_dag, st.integers(0, 10**6), st.integers(1, 12)))
def test_sure_bounds_take_no_search(graph: Graph) -> None:
    """The largest unavoidable set, and the peak of the captured order."""
    stated = problem(graph, "cpu")
    lower, upper = sure_bounds(graph, device="cpu")
    extra = [stated.needs[op] - stated.born[op] for op in range(len(graph))]
    sets = [unavoidable(stated, op) for op in range(len(graph))]
    levels = [sum(int(graph.storages[s].nbytes) for s in found) + more for found, more in zip(sets, extra, strict=True)]
    assert lower == max(levels, default=stated.base)
    assert lower <= smallest_peak(stated) <= upper == stated.peak(range(len(graph)))


@given(st.builds(random_dag, st.integers(0, 10**6), st.integers(1, 15)), SIZES)
def test_moments_are_unavoidable_or_resident(graph: Graph, sizes: list[Expr]) -> None:
    graph = with_sizes(graph, sizes, {"a": 3, "b": 4})
    stated, found, bounds = problem(graph, "cpu"), footprint(graph), bounds_of(graph)
    for moment in bounds.lower:
        assert list(moment.storages) == unavoidable(stated, moment.op)
    for moment in bounds.upper:
        assert list(moment.storages) == stated.resident_at(found.order, found.order.index(moment.op))
    for moments in (bounds.lower, bounds.upper):
        sets = [set(moment.storages) for moment in moments]
        assert not any(one <= two for i, one in enumerate(sets) for j, two in enumerate(sets) if i != j)


def test_a_fork_by_hand() -> None:
    """x -> p -> sum, x -> q -> sum: whichever comes first, both are there at the sum, and x with the first."""
    builder = Builder()
    x, p, q, both = (builder.storage(1, birth=i, death=4) for i in range(4))
    builder.op([], [x])
    builder.op([x], [p])
    builder.op([x], [q])
    builder.op([p, q], [both])
    graph = with_sizes(builder.graph(), [A, B, B, A], {"a": 2, "b": 3})
    ends = tuple(msgspec.structs.replace(s, death=death) for s, death in zip(graph.storages, (3, 4, 4, 4), strict=True))
    assert minimal_bounds(msgspec.structs.replace(graph, storages=ends)) == (A + 2 * B, A + 2 * B)


def test_workspace_counts() -> None:
    graph = capture("resnet18_cifar", hyperparameters={"batch": 2, "width": 8}, real=True)
    for workspace in (True, False):
        bounds = minimal_bounds(graph, workspace=workspace)
        found = footprint(graph, workspace=workspace)
        assert bounds[0].value is not None
        assert bounds[0].value <= found.lower_bytes
        assert bounds[1] == parse(str(found.upper_bytes))


def test_loops_and_empty_steps() -> None:
    assert minimal_bounds(Builder().graph()) == (constant(0), constant(0))
    with pytest.raises(PlanError, match="write out 'while' first"):
        minimal_bounds(msgspec.structs.replace(random_dag(1, 5), loops=(Loop("while", -1, 10),)))
