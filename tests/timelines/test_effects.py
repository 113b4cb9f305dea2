"""Effects compose associatively and give back the timeline's peak, op by op and module by module."""

from __future__ import annotations

import functools
import itertools

from hypothesis import given
from hypothesis import strategies as st

from tensortide.graph import OUTSIDE, Graph, Phase, Role
from tensortide.timelines import IDENTITY, Effect, by_module, compose, effects, timeline
from tests.graphs import Builder, graphs


@st.composite
def legal_effects(draw: st.DrawFn) -> Effect:
    net = draw(st.integers(-1000, 1000))
    return Effect(net, max(net, 0) + draw(st.integers(0, 1000)))


@given(legal_effects(), legal_effects(), legal_effects())
def test_effects_are_a_monoid(a: Effect, b: Effect, c: Effect) -> None:
    assert (a @ b) @ c == a @ (b @ c) == a.then(b).then(c)
    assert IDENTITY @ a == a == a @ IDENTITY


@given(st.lists(legal_effects()))
def test_compose_folds(parts: list[Effect]) -> None:
    assert compose(parts) == functools.reduce(Effect.then, parts, IDENTITY)


def test_peaks_are_not_combined_with_max_alone() -> None:
    assert Effect(100, 100) @ Effect(0, 50) == Effect(100, 150)


@given(graphs(), st.sampled_from(["eager", "last_use"]))
def test_effects_of_all_ops_give_the_peak(graph: Graph, lifetimes: str) -> None:
    line = timeline(graph, lifetimes=lifetimes)  # type: ignore[arg-type]
    whole = compose(effects(line))
    if len(graph):
        assert line.start_bytes + whole.peak == line.peak_bytes
    assert line.start_bytes + whole.net == line.end_bytes


@given(graphs())
def test_a_module_and_the_ops_around_it_give_the_peak(graph: Graph) -> None:
    line = timeline(graph)
    ops = effects(line)
    for module in by_module(line):
        parts, done = [], 0
        for segment in module.segments:
            assert segment.effect == compose(ops[segment.start : segment.stop])
            parts += [*ops[done : segment.start], segment.effect]
            done = segment.stop
        parts += ops[done:]
        if len(graph):
            assert line.start_bytes + compose(parts).peak == line.peak_bytes


@given(graphs())
def test_calls_of_a_module_are_its_ops_in_maximal_runs(graph: Graph) -> None:
    for module, memory in zip(graph.modules, by_module(timeline(graph)), strict=True):
        inside = [op.module != OUTSIDE and contains(module.path, graph.modules[op.module].path) for op in graph.ops]
        covered = [i for s in memory.segments for i in range(s.start, s.stop)]
        assert covered == [i for i, yes in enumerate(inside) if yes]
        for s in memory.segments:
            assert {graph.ops[i].phase for i in range(s.start, s.stop)} == {s.phase}
        for a, b in itertools.pairwise(memory.segments):
            assert a.stop < b.start or a.phase is not b.phase


def contains(outer: str, inner: str) -> bool:
    return not outer or inner == outer or inner.startswith(outer + ".")


def test_what_a_module_retains() -> None:
    b = Builder()
    root, block = b.module(""), b.module("block")
    weight = b.storage(100, Role.PARAMETER)
    hidden = b.storage(10, Role.ACTIVATION, 0, 3)
    scratch = b.storage(7, Role.TEMPORARY, 0, 1)
    out = b.storage(5, Role.ACTIVATION, 1, 3)
    gradient = b.storage(100, Role.GRADIENT, 2, None)
    b.op([weight], [hidden, scratch], module=block)
    b.op([hidden], [out], module=root)
    b.op([out, hidden], [gradient], module=block, phase=Phase.BACKWARD)
    outer, inner = by_module(timeline(b.graph()))
    assert (outer.path, inner.path) == ("(root)", "block")
    assert inner.retained_bytes == 10
    assert inner.transient_bytes == 100
    assert [(s.start, s.stop, s.effect) for s in inner.segments] == [(0, 1, Effect(10, 17)), (2, 3, Effect(85, 100))]
    assert (outer.retained_bytes, outer.transient_bytes) == (15, 100)
    assert [(s.start, s.stop) for s in outer.segments] == [(0, 2), (2, 3)]
