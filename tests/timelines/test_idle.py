"""Memory-time, hideable periods and what to move or compute again: against brute force, and published figures."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import GraphError, TensortideError
from tensortide.graph import Graph, Role
from tensortide.timelines import (
    NEVER_READ,
    Idleness,
    MemoryTime,
    Recompute,
    idleness,
    live_bytes,
    liveness,
    offloads,
    recomputations,
)
from tensortide.timing import LINKS, Link, link
from tests.graphs import Builder, graphs
from tests.timelines.g10 import TRACES, idleness_of
from tests.timelines.test_liveness import DURATIONS, worked_example

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

SLOW = Link("slow", Fraction(2**10), 7)


@st.composite
def timed(draw: st.DrawFn) -> Idleness:
    graph = draw(graphs())
    count = len(graph)
    durations = draw(st.lists(st.integers(0, 10**9), min_size=count, max_size=count))
    return idleness(graph, durations, mode=draw(st.sampled_from(("storage", "compat"))))


# Memory-time


def test_the_worked_example() -> None:
    """W lies idle for 90 of 150 ns, A for 30 of its 100."""
    idle = idleness(worked_example(), DURATIONS)
    by_role = idle.by_role
    assert by_role["parameter"] == MemoryTime(1, 8, 8 * 60, 8 * 90, 0)
    assert by_role["activation"] == MemoryTime(2, 6, 4 * 70 + 2 * 90, 4 * 30, 0)
    assert by_role["temporary"] == MemoryTime(1, 1, 20, 0, 0)
    assert by_role["gradient"] == MemoryTime(1, 3, 3 * 90, 0, 0)
    assert idle.total.total_byte_ns == 12 * 10 + 15 * 20 + 14 * 30 + 17 * 40 + 11 * 50
    assert (idle.op_sum_ns, idle.peak_op) == (150, 3)
    assert idle.split(3, SLOW).idle_bytes == 8


def brute(idle: Idleness) -> tuple[int, int, int]:
    """Active, idle and unused byte-nanoseconds, told op by op from birth, death and uses."""
    sums, count = [0, 0, 0], len(idle.graph)
    for life in idle.lives:
        for op in range(count):
            born = life.birth is not None and life.death is not None
            alive = life.persistent or (born and (life.birth or 0) <= op < (life.death or 0))
            alive = alive or (life.death == NEVER_READ and op == life.birth)
            if not alive:
                continue
            used_later = any(use > op for use in life.uses if life.persistent or use < (life.death or 0))
            comes_back = used_later or (life.persistent and bool(life.uses))
            kind = 0 if op in life.uses else 1 if comes_back else 2
            sums[kind] += life.nbytes * idle.durations_ns[op]
    return sums[0], sums[1], sums[2]


@given(timed())
def test_memory_time_is_that_of_a_count_op_by_op(idle: Idleness) -> None:
    workspace = sum(int(n) * ns for n, ns in zip(idle.workspace, idle.durations_ns, strict=True))
    active, waiting, unused = brute(idle)
    total = idle.total
    assert (total.active_byte_ns - workspace, total.idle_byte_ns, total.unused_byte_ns) == (active, waiting, unused)


@given(timed())
def test_active_and_inactive_make_up_what_is_alive(idle: Idleness) -> None:
    def integral(series: Ints) -> int:
        return sum(int(n) * ns for n, ns in zip(series, idle.durations_ns, strict=True))

    assert idle.total.total_byte_ns == integral(idle.live)
    assert idle.total.active_byte_ns == integral(idle.active)
    for role, spent in idle.by_role.items():
        lives = [life for life in idle.lives if idle.role(life).value == role]
        used = sum(life.nbytes * idle.durations_ns[op] for life in lives for op in life.live_uses)
        assert spent.active_byte_ns == (used if lives else integral(idle.workspace))
        assert spent.total_byte_ns == integral(idle.live_by_role.get(role, idle.live * 0))
    assert (idle.active <= idle.live).all()
    known = live_bytes(liveness(idle.graph, idle.mode), len(idle.graph))
    assert (idle.live == known + idle.workspace).all()


def test_only_one_device_counts() -> None:
    b = Builder()
    here, there = b.storage(9, Role.PARAMETER), b.storage(5, Role.PARAMETER, device="cuda:0")
    b.op([here, there])
    assert idleness(b.graph(), [7]).total == MemoryTime(1, 9, 63)
    assert idleness(b.graph(), [7], device="cuda:0").total == MemoryTime(1, 5, 35)


def test_wrong_durations() -> None:
    with pytest.raises(GraphError, match="less than 0 ns"):
        idleness(worked_example(), [1, 2, -3, 4, 5])
    with pytest.raises(GraphError, match="2 durations for 5 ops"):
        idleness(worked_example(), [1, 2])


# Links


@pytest.mark.parametrize(
    ("text", "rate", "latency"),
    [("25GB/s", 25 * 10**9, 45_000), ("2 GiB/s, 7.5us", 2**31, 7500), ("1e9B/s", 10**9, 45_000)],
)
def test_links_of_ones_own(text: str, rate: int, latency: int) -> None:
    made = link(text)
    assert (made.bytes_per_s, made.latency_ns) == (Fraction(rate), latency)


@pytest.mark.parametrize("text", ["", "pcie9", "0", "GB/s", "5GB/s,", "1e9", "25G", "900B/s", "-1GB/s", "5GB/s,3ms"])
def test_what_is_no_link(text: str) -> None:
    with pytest.raises(TensortideError, match="no link is called"):
        link(text)


def test_links_that_have_names() -> None:
    assert link("PCIe3") == LINKS["pcie3"]
    assert LINKS["pcie3"].bytes_per_s == 15_754_000_000
    assert LINKS["nvme"].hidden_above_ns(0) == 162_500
    assert LINKS["nvme"].transfer_ns(1 << 30) == 65_000 + 312_500_000


@given(st.integers(0, 2**45), st.integers(0, 10**13), st.sampled_from([*LINKS.values(), SLOW]))
def test_a_period_hides_two_and_a_half_transfers(nbytes: int, ns: int, over: Link) -> None:
    seconds = Fraction(over.latency_ns, 10**9) + nbytes / over.bytes_per_s
    assert (ns > over.hidden_above_ns(nbytes)) == (Fraction(ns, 10**9) > Fraction(5, 2) * seconds)
    assert 0 <= Fraction(over.transfer_ns(nbytes), 10**9) - seconds < Fraction(1, 10**9)


@given(timed())
def test_hideable_periods_and_offloads_agree(idle: Idleness) -> None:
    found, rows = idle.hideable(SLOW), offloads(idle, SLOW)
    assert found.hidden - sum(row.intervals for row in rows) == sum(
        not life.nbytes and interval.time > SLOW.hidden_above_ns(0) for life, interval in idle.intervals
    )
    assert found.hidden_byte_ns == sum(row.byte_ns for row in rows)
    assert found.interval_byte_ns == idle.total.idle_byte_ns
    assert found.hidden_byte_ns <= found.interval_byte_ns
    assert found.hidden_bytes == sum(row.nbytes * row.intervals for row in rows)
    assert [row.byte_ns for row in rows] == sorted((row.byte_ns for row in rows), reverse=True)
    if len(idle.graph):
        split = idle.split(idle.peak_op, SLOW)
        assert max(idle.live) == split.active_bytes + split.idle_bytes
        assert split.hideable_bytes == sum(row.nbytes for row in rows if row.at_peak) <= split.idle_bytes


# What to compute again


def values(graph: Graph) -> list[dict[int, object]]:
    """What each storage holds just before each op, as a term of the ops that made it."""
    now: dict[int, object] = {i: ("before", i) for i, s in enumerate(graph.storages) if s.birth is None}
    moments = []
    for index, op in enumerate(graph.ops):
        moments.append(dict(now))
        reads = [graph.tensors[t].storage for t in op.inputs]
        held = tuple([now.get(s) for s in reads])
        changed = {reads[slot] for slot in graph.calls[op.call].mutated}
        for storage in changed | ({graph.tensors[t].storage for t in op.outputs} - set(reads)):
            now[storage] = (index, storage, held)
    return moments


@given(graphs(max_ops=20))
def test_what_is_computed_again_is_what_was_there(graph: Graph) -> None:
    """The ops find what they found the first time among what is there, or was computed again before them."""
    idle = idleness(graph, [3 + 10**i for i in range(len(graph))])
    moments, lives = values(graph), {life.index: life for life in idle.everywhere}
    for row in recomputations(idle):
        after = moments[row.end]
        there = [i for i, s in enumerate(graph.storages) if s.birth is None or s.birth < row.end]
        there = [i for i in there if lives[i].persistent or (lives[i].death or 0) > row.end]
        pool = {after[i] for i in there if i != row.index}
        for op in row.ops:
            reads = {graph.tensors[t].storage for t in graph.ops[op].inputs}
            assert {moments[op][storage] for storage in reads} <= pool
            pool |= set(moments[op + 1].values()) - set(moments[op].values())
        assert after[row.index] in pool
        assert row.cost_ns == sum(3 + 10**op for op in set(row.ops)) < row.idle_ns


def chain(length: int, pause: int) -> Graph:
    """x -> a0 -> a1 -> ..., of which the last is read once more at the end; the others are gone by then."""
    b = Builder()
    tensor = b.storage(8, Role.INPUT)
    for i in range(length):
        made = b.storage(8, Role.ACTIVATION, i, None)
        b.op([tensor], [made])
        tensor = made
    for _ in range(pause):
        b.op()
    b.op([tensor])
    return b.graph()


def test_inputs_that_an_op_brings_in_cannot_be_computed_again() -> None:
    for role, found in ((Role.INPUT, []), (Role.ACTIVATION, [0])):
        b = Builder()
        batch = b.storage(8, role, 0, 4)
        b.op([], [batch])
        for _ in range(2):
            b.op()
        b.op([batch])
        assert [row.index for row in rows_of(b.graph())] == found


def rows_of(graph: Graph) -> list[Recompute]:
    return recomputations(idleness(graph, [10] * len(graph)))


def test_what_is_gone_is_computed_too_as_far_as_the_chain_is_short() -> None:
    (row,) = [row for row in rows_of(with_deaths(chain(3, pause=4))) if row.index == 3]
    assert (row.ops, row.cost_ns, row.start, row.end, row.idle_ns) == ((0, 1, 2), 30, 3, 7, 40)
    assert rows_of(with_deaths(chain(3, pause=3))) == [], "it takes as long as the period"
    assert [row.index for row in rows_of(with_deaths(chain(16, pause=20)))] == [16]
    assert rows_of(with_deaths(chain(17, pause=20))) == []


def with_deaths(graph: Graph) -> Graph:
    """Storages are released right after their last use."""
    last = {graph.tensors[t].storage: i for i, op in enumerate(graph.ops) for t in (*op.inputs, *op.outputs)}
    storages = tuple(
        s if s.birth is None else type(s)(s.nbytes, s.device, s.role, s.birth, last[i] + 1)
        for i, s in enumerate(graph.storages)
    )
    return Graph(graph.ops, graph.calls, graph.tensors, storages)


def test_what_was_overwritten_cannot_be_computed_again() -> None:
    b = Builder()
    weight = b.storage(8, Role.PARAMETER)
    made = b.storage(8, Role.ACTIVATION, 0, None)
    b.op([weight], [made])
    b.op([weight], [weight], mutated=[0])
    b.op()
    b.op()
    b.op([made])
    assert rows_of(b.graph()) == []
    graph = b.graph()
    kept = Graph((graph.ops[0], graph.ops[2], graph.ops[2], graph.ops[4]), graph.calls, graph.tensors, graph.storages)
    assert [row.index for row in rows_of(kept)] == [1]


# Published figures


PUBLISHED = {
    "BERT_Base-128": (74.4, 24.08, 1.12, 0.59, 0.58, (77, 56, 0), (62, 58)),
    "BERT_Base-256": (148.0, 47.76, 2.25, 0.60, 0.59, (79, 57, 0), (60, 55)),
    "VIT-512": (73.9, 23.01, 0.80, 0.60, 0.48, (74, 49, 0), (58, 49)),
    "Inceptionv3-512": (264.2, 44.70, 10.55, 1.23, 0.70, (86, 76, 56), (80, 50)),
}
"""GiB of all tensors, of the peak and of the most active kernel; active by peak, mean and median, in per cent; per cent
of periods longer than 1 ms, 100 ms and 10 s; per cent of periods and of their bytes that an NVMe drive can hide."""


@pytest.mark.parametrize("trace", TRACES)
def test_published_figures_of_kernel_traces(reference: Path, trace: str) -> None:
    idle = idleness_of(reference / "g10" / trace)
    gib = 2.0**30
    nbytes, peak, active, mean, median, longer, hideable = PUBLISHED[trace]
    assert sum(life.nbytes for life in idle.lives) / gib == pytest.approx(nbytes, abs=0.05)
    assert idle.live.max() / gib == pytest.approx(peak, abs=0.005)
    assert idle.active.max() / gib == pytest.approx(active, abs=0.0051)
    ratio = 100 * idle.active / idle.live.max()
    assert ratio.mean() == pytest.approx(mean, abs=0.01)
    assert np.median(ratio) == pytest.approx(median, abs=0.01)
    found = idle.hideable(LINKS["nvme"])
    counts = idle.longer_than([10**6, 10**8, 10**10])
    assert tuple(round(100 * count / found.intervals) for count in counts.values()) == longer
    assert (
        round(100 * found.hidden / found.intervals),
        round(100 * found.hidden_bytes / found.interval_bytes),
    ) == hideable
