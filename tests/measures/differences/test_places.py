"""Differences by op, phase, tensor at the peak and over time: each sums to that of the step."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.differences import Pair
from tensortide.graph import Graph
from tensortide.measures.differences.memory import POINTS, curves, held
from tensortide.measures.differences.ops import PhaseAmounts, aligned, by_kind, by_phase
from tensortide.measures.differences.side import Side
from tensortide.measures.differences.step import StepDifference
from tensortide.timing import Durations
from tests.graphs import graphs
from tests.measures.differences.models import difference, side
from tests.measures.differences.test_modules import CASES


def assert_sums(found: StepDifference) -> None:
    """Kinds of op and phases sum to the step; tensors at the peaks to the peaks; the curves reach them."""
    a, b = found.a, found.b
    for groups in (found.kinds, found.phases):
        for name in ("ops", "flops", "accessed_bytes", "unknown_ops"):
            sums = [sum(values) for values in zip((0, 0), *(group.values(name) for group in groups), strict=True)]
            assert sums == [*found.root.values(name)]
    peaks = [sum(values) for values in zip((0, 0), *(one.values("bytes") for one in found.peak), strict=True)]
    assert peaks == [a.memory.peak_bytes, b.memory.peak_bytes]
    assert all(one.a is None or one.b is None or one.a.of.role == one.b.of.role for one in found.peak)
    if found.curves is not None:
        assert (max(found.curves.a), max(found.curves.b)) == (a.memory.peak_bytes, b.memory.peak_bytes)


@given(graphs(), graphs())
def test_random_steps(one: Graph, other: Graph) -> None:
    assert_sums(StepDifference(Side("a", one), Side("b", other)))


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_real_models(settings: dict[str, Any]) -> None:
    found = difference({}, settings)
    assert_sums(found)
    inside = {(one.modules[0], one.change) for one in found.ops}
    inside = {one for one in inside if one[0].startswith(("blocks", "layers", "model"))}
    if settings in ({"name": "layers"}, {"wrapped": True}):
        assert not found.ops
    if settings == {"doubled": 3}:
        assert inside == {("blocks.3.mlp.fc1", "resized"), ("blocks.3.mlp", "resized"), ("blocks.3.mlp.fc2", "resized")}


def test_times_that_are_not_known_are_none() -> None:
    a, b = side(), side(blocks=5)
    timed = dataclasses.replace(b, durations=Durations((1000,) * len(b.graph), "a clock", "measured"))
    for one, times in ((b, (None, None)), (timed, (None, 1000 * len(b.graph)))):
        found = StepDifference(a, one)
        assert (found.root.values("time_ns"), found.root.difference.time_ns) == (times, None)
        pairs: list[Pair[Any]] = [*found.root.walk(), *found.kinds, *found.phases]
        known = [pair.values("time_ns") for pair in pairs if pair.a is not None]
        assert all(one.a is None and one.difference is None for one in known)
        assert [pair.kind for pair in found.root.walk()].count("added") == 6
    alone = next(pair for pair in StepDifference(b, a).root.walk() if pair.b is None)
    assert [one.time_ns for one in (*alone.whole, alone.difference)] == [None, None, None]
    assert StepDifference(timed, timed).root.difference.time_ns == 0


def test_ops_that_differ_sum_to_the_difference_of_their_module() -> None:
    """In modules that both have; others count as a whole."""
    for settings in ({"doubled": 3}, {"checkpointed": True}, {"batch": 16}):
        found = difference({}, settings)
        for pair in found.root.walk():
            if pair.a is not None and pair.b is not None:
                mine = [one.difference for one in found.ops if one.modules == [pair.label]]
                own = pair.own[1] - pair.own[0]
                assert (sum(one.flops for one in mine), sum(one.accessed_bytes for one in mine)) == (
                    own.flops,
                    own.accessed_bytes,
                )


def test_recomputation_is_a_phase_of_its_own() -> None:
    phases = {group.name: group for group in by_phase(side(), side(checkpointed=True))}
    assert phases["recompute"].kind == "added"
    assert phases["recompute"].whole[0] == PhaseAmounts()
    assert phases["recompute"].values("peak_bytes").a is phases["recompute"].difference.peak_bytes is None
    assert phases["recompute"].whole[1].flops > 0
    assert phases["forward"].difference.flops == 0


def test_tensors_of_one_parameter_are_matched_whatever_the_module_is_called() -> None:
    found = difference({}, {"name": "layers", "doubled": 3})
    wide = [one for one in found.peak if one.difference.bytes and held(one).role == "parameter"]
    assert {held(one).module for one in wide} == {"layers.3.mlp.fc1", "layers.3.mlp.fc2"}
    assert all(one.a is not None and one.b is not None for one in wide)
    assert not [one for one in found.peak if one.a is None or one.b is None]


def test_a_tensor_of_one_side_has_no_partner() -> None:
    only = [one for one in difference({}, {"blocks": 5}).peak if one.a is None]
    assert {held(one).module.split(".")[0] for one in only} == {"blocks"}
    assert all(one.values("bytes").a == 0 and one.kind == "added" for one in only)


def test_curves_are_over_time_where_both_are_timed() -> None:
    graph = side().graph
    timed = [Side("t", graph, Durations((ns,) * len(graph), "a clock", "measured")) for ns in (10, 30)]
    found = curves(timed[0], timed[1])
    assert found is not None
    assert found.unit == "ns"
    assert found.x[-1] == 30 * len(graph)
    third = len(found.a) // 3
    assert max(found.a[third + 1 :]) == 0  # the first is over by then
    assert max(found.a[:third]) == max(found.b)
    untimed = curves(side(), timed[1])
    assert untimed is not None
    assert untimed.unit == "op"
    assert len(untimed.a) == min(POINTS, len(graph))


def test_an_untimed_curve_of_few_ops_is_the_memory_itself() -> None:
    graph = side().graph
    found = curves(side(), side())
    assert found is not None
    if len(graph) <= POINTS:
        assert np.array_equal(found.a, side().memory.resident)
    assert found.a == found.b


LETTERS = st.lists(st.sampled_from("abc"), max_size=12)


@given(LETTERS, LETTERS)
def test_alignments_are_of_equal_entries_in_order(one: list[str], other: list[str]) -> None:
    found = [*aligned([*enumerate(one)], [*enumerate(other)], lambda entry: entry[1])]
    for place, entries in enumerate((one, other)):
        assert [entry for pair in found if (entry := pair[place]) is not None] == [*enumerate(entries)]
    assert all(a[1] == b[1] for a, b in found if a is not None and b is not None)
    if one == other:
        assert found == [((i, name), (i, name)) for i, name in enumerate(one)]


def test_kinds_name_the_largest_difference_first() -> None:
    first = by_kind(side(), side(doubled=3))[0]
    assert first.name.startswith(("aten.mm", "aten.addmm"))
    assert first.difference.flops > 0
