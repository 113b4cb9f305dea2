"""Differences by op, phase, tensor at the peak and over time: each sums to that of the step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.graph import Graph
from tensortide.metrics.differences.curves import POINTS, curves
from tensortide.metrics.differences.ops import _pairs, by_kind, by_phase
from tensortide.metrics.differences.peak import PeakTensor
from tensortide.metrics.differences.side import NOTHING, Side
from tensortide.metrics.differences.step import StepDifference
from tensortide.timing import Durations
from tests.graphs import graphs
from tests.metrics.differences.models import difference, side
from tests.metrics.differences.test_join import CASES


def assert_sums(found: StepDifference) -> None:
    """Kinds of op and phases sum to the step; tensors at the peaks to the peaks; the curves reach them."""
    a, b = found.a, found.b
    for groups in (found.kinds, found.phases):
        sums = [sum((getattr(group, at) for group in groups), NOTHING) for at in ("a", "b")]
        for one, whole in zip(sums, found.root.whole, strict=True):
            assert (one.ops, one.flops, one.bytes, one.unknown) == (whole.ops, whole.flops, whole.bytes, whole.unknown)
    peaks = [sum(values) for values in zip(*(one.nbytes for one in found.peak), strict=True)] or [0, 0]
    assert peaks == [a.memory.peak_bytes, b.memory.peak_bytes]
    assert all(one.a is None or one.b is None or one.a.role == one.b.role for one in found.peak)
    if found.curves is not None:
        assert (max(found.curves.a), max(found.curves.b)) == (a.memory.peak_bytes, b.memory.peak_bytes)


@given(graphs(), graphs())
def test_random_steps(one: Graph, other: Graph) -> None:
    assert_sums(StepDifference(Side("a", one), Side("b", other)))


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_real_models(settings: dict[str, Any]) -> None:
    found = difference({}, settings)
    assert_sums(found)
    inside = {(one.module, one.kind) for one in found.ops if one.module.startswith(("blocks", "layers", "model"))}
    if settings in ({"name": "layers"}, {"wrapped": True}):
        assert not found.ops
    if settings == {"doubled": 3}:
        assert inside == {("blocks.3.mlp.fc1", "resized"), ("blocks.3.mlp", "resized"), ("blocks.3.mlp.fc2", "resized")}


def test_ops_that_differ_sum_to_the_difference_of_their_module() -> None:
    """In modules that both have; others count as a whole."""
    for settings in ({"doubled": 3}, {"checkpointed": True}, {"batch": 16}):
        found = difference({}, settings)
        for pair in found.root.walk():
            if pair.a is not None and pair.b is not None:
                mine = [one for one in found.ops if one.module == pair.label]
                own = pair.own[1] - pair.own[0]
                assert (sum(one.flops for one in mine), sum(one.bytes for one in mine)) == (own.flops, own.bytes)


def test_recomputation_is_a_phase_of_its_own() -> None:
    phases = {group.name: group for group in by_phase(side(), side(checkpointed=True))}
    assert phases["recompute"].a == NOTHING
    assert phases["recompute"].peaks[0] is None
    assert phases["recompute"].b.flops > 0
    assert phases["forward"].difference.flops == 0


def test_tensors_of_one_parameter_are_matched_whatever_the_module_is_called() -> None:
    found = difference({}, {"name": "layers", "doubled": 3})
    wide = [one for one in found.peak if one.difference and one.held.role == "parameter"]
    assert {one.held.module for one in wide} == {"layers.3.mlp.fc1", "layers.3.mlp.fc2"}
    assert all(one.a is not None and one.b is not None for one in wide)
    assert not [one for one in found.peak if one.a is None or one.b is None]


def test_a_tensor_of_one_side_has_no_partner() -> None:
    only = [one for one in difference({}, {"blocks": 5}).peak if one.a is None]
    assert {one.held.module.split(".")[0] for one in only} == {"blocks"}
    assert all(one.nbytes[0] == 0 and isinstance(one, PeakTensor) for one in only)


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
    pairs = _pairs(one, other)
    assert all(one[i] == other[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    if one == other:
        assert pairs == [(i, i) for i in range(len(one))]


def test_kinds_name_the_largest_difference_first() -> None:
    first = by_kind(side(), side(doubled=3))[0]
    assert first.name.startswith(("aten.mm", "aten.addmm"))
    assert first.difference.flops > 0
