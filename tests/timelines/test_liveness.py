"""Birth, death and idle intervals: the worked example, the wrap of persistent storages, the two modes."""

from __future__ import annotations

import pytest
from hypothesis import given

from tensortide.errors import GraphError
from tensortide.graph import Graph, Role
from tensortide.timelines import NEVER_READ, Interval, Life, active_bytes, live_bytes, liveness
from tensortide.timelines.intervals import lasting_tensors
from tests.graphs import Builder, graphs

DURATIONS = [10, 20, 30, 40, 50]


def worked_example(update: bool = True) -> Graph:
    """Five ops; W persistent (8), A (4), B (2, also updated in place), workspace S (1), G (3)."""
    b = Builder()
    w = b.storage(8, Role.PARAMETER, name="W")
    a = b.storage(4, Role.ACTIVATION, 0, 4, name="A")
    c = b.storage(2, Role.ACTIVATION, 1, 4, name="B")
    s = b.storage(1, Role.TEMPORARY, 1, 2, name="S")
    g = b.storage(3, Role.GRADIENT, 3, 5, name="G")
    b.op([w], [a])
    b.op([a], [c, s])
    b.op([c], [c], mutated=[0])
    b.op([a, c], [g])
    b.op([g, w] if update else [g], [w] if update else [], mutated=[1] if update else [])
    return b.graph()


@pytest.mark.parametrize("mode", ["storage", "compat"])
def test_worked_example(mode: str) -> None:
    w, a, b, s, g = liveness(worked_example(), mode, DURATIONS)  # type: ignore[arg-type]
    assert w == Life(0, 8, True, 0, 5, (0, 4), (Interval(1, 4, False, 90),))
    assert a == Life(1, 4, False, 0, 4, (0, 1, 3), (Interval(2, 3, False, 30),))
    assert b == Life(2, 2, False, 1, 4, (1, 2, 3), ())
    assert s == Life(3, 1, False, 1, 2, (1,), (), unread=True)
    assert g == Life(4, 3, False, 3, 5, (3, 4), ())
    lives = (w, a, b, s, g)
    assert [life.birth for life in lives] == [None, 0, 1, 1, 3]
    assert [life.death for life in lives] == [None, 4, 4, NEVER_READ, 5]
    assert active_bytes(lives, 5).tolist() == [12, 7, 2, 9, 11]
    assert live_bytes(lives, 5).tolist() == [12, 15, 14, 17, 11]


def test_a_persistent_storage_used_once_is_idle_all_around() -> None:
    w = liveness(worked_example(update=False), durations=DURATIONS)[0]
    assert w.intervals == (Interval(1, 0, True, 140),)


@pytest.mark.parametrize(
    ("used_at", "intervals"),
    [
        ([0, 3], [Interval(1, 3)]),
        ([3], [Interval(0, 3)]),
        ([1, 3], [Interval(2, 3), Interval(0, 1)]),
        ([1], [Interval(2, 1, True)]),
        ([0, 1, 2, 3], []),
        ([1, 2], [Interval(3, 1, True)]),
    ],
)
def test_the_wrap_of_persistent_storages(used_at: list[int], intervals: list[Interval]) -> None:
    b = Builder()
    w = b.storage(1, Role.PARAMETER)
    for op in range(4):
        b.op([w] if op in used_at else [])
    assert list(liveness(b.graph())[0].intervals) == intervals


def test_modes_differ_on_views_outputs_and_what_no_op_touches() -> None:
    b = Builder()
    weight = b.storage(8, Role.PARAMETER)
    b.storage(9, Role.BUFFER, name="untouched")
    loss = b.storage(4, Role.OUTPUT, 1, None)
    half = b.view(weight, 4)
    b.op([weight], [half])
    b.op([half], [loss])
    b.op()
    graph = b.graph()
    by_storage = {life.index: life for life in liveness(graph)}
    assert by_storage[0].uses == (0, 1)
    assert by_storage[0].intervals == (Interval(2, 0, True),)
    assert (by_storage[1].persistent, by_storage[1].birth, by_storage[1].intervals) == (True, None, ())
    assert (by_storage[2].birth, by_storage[2].death) == (1, 3), "an output lives to the end"
    compat = {life.index: life for life in liveness(graph, "compat")}
    assert (compat[half].persistent, compat[half].nbytes, compat[half].birth, compat[half].death) == (False, 4, 0, 2)
    assert compat[weight].persistent
    assert (compat[1].persistent, compat[1].birth, compat[1].death) == (False, None, None), "never alive"
    assert compat[loss].death == NEVER_READ
    assert live_bytes(liveness(graph), 3).tolist() == [17, 21, 21]


def test_times_are_optional_and_may_be_fractions() -> None:
    assert liveness(worked_example())[0].intervals == (Interval(1, 4),)
    assert liveness(worked_example(), durations=[0.5] * 5)[0].intervals[0].time == 1.5


def test_wrong_arguments() -> None:
    with pytest.raises(GraphError, match="3 durations for 5 ops"):
        liveness(worked_example(), durations=[1, 2, 3])
    with pytest.raises(GraphError, match="compat"):
        liveness(worked_example(), "views")  # type: ignore[arg-type]


@given(graphs())
def test_periods_and_uses_cover_a_life(graph: Graph) -> None:
    for life in liveness(graph):
        idle = [op for interval in life.intervals for op in covered(interval, len(graph))]
        assert not set(idle) & set(life.uses)
        if life.persistent and life.uses:
            assert sorted([*idle, *life.uses]) == list(range(len(graph)))
        if life.birth is not None and life.death is not None and not life.persistent:
            assert all(life.birth <= op < life.death for op in idle)


def covered(period: Interval, count: int) -> list[int]:
    if period.looped:
        return [*range(period.start, count), *range(period.end)]
    return list(range(period.start, period.end))


@given(graphs())
def test_liveness_is_never_longer_than_the_real_life(graph: Graph) -> None:
    for life, storage in zip(liveness(graph), graph.storages, strict=True):
        if life.birth is None or life.death in (None, NEVER_READ):
            continue
        assert storage.birth is None or storage.birth <= life.birth
        assert life.death <= (len(graph) if storage.death is None else storage.death)


@pytest.mark.parametrize(
    ("used_at", "birth", "death", "periods"),
    [
        ([793, 810], 793, 811, [(794, 810)]),
        ([794, 796, 799, 1039], 794, 1040, [(795, 796), (797, 799), (800, 1039)]),
    ],
)
def test_documented_activations(used_at: list[int], birth: int, death: int, periods: list[tuple[int, int]]) -> None:
    """Two activations of a ResNet-50, as the documentation of a liveness tool tells of them."""
    b = Builder()
    activation = b.storage(1, Role.ACTIVATION, birth, death)
    for op in range(1041):
        b.op([activation] if op in used_at[1:] else [], [activation] if op == used_at[0] else [])
    for mode in ("storage", "compat"):
        (life,) = liveness(b.graph(), mode, range(1041))
        assert (life.birth, life.death, life.uses) == (birth, death, tuple(used_at))
        assert [(interval.start, interval.end) for interval in life.intervals] == periods
        assert [interval.time for interval in life.intervals] == [sum(range(*period)) for period in periods]


def test_what_lasts_where_every_tensor_owns_its_bytes() -> None:
    """The first tensor of what exists before and after the step, even if it is written before it is read."""
    b = Builder()
    weight = b.storage(8, Role.PARAMETER)
    view = b.view(weight, 4)
    unused = b.storage(3, Role.BUFFER)
    local = b.storage(2, Role.ACTIVATION, 0, 1)
    b.op([], [weight, local])
    b.op([weight], [view])
    graph = b.graph()
    assert lasting_tensors(graph) == [True, False, True, False]
    lives = {life.index: life for life in liveness(graph, "compat")}
    assert (lives[weight].persistent, lives[weight].intervals) == (True, ())
    assert not lives[view].persistent
    assert not lives[unused].persistent
    assert lives[local].death == NEVER_READ
