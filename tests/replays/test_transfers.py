"""Plans that move storages, replayed: a Timeline with copy engines, stalls and tiers that says what was played."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.graph import Graph, Role, validate
from tensortide.plans import Compute, Copy, Evict, Fetch, Lane, Offload, Plan
from tensortide.plans.instance import DEVICE, instance
from tensortide.plans.model import Step
from tensortide.replays import TransferTimeline, executed, replay
from tensortide.timelines.events import Kind
from tensortide.timing.links import Link
from tests.graphs import Builder
from tests.plans.events.drawn import random_plan
from tests.replays.remat.steps import random_recording

HOST, SSD = Link("host", Fraction(10**9), 1), Link("ssd", Fraction(10**9, 3), 5, in_bytes_per_s=Fraction(10**9, 2))
LINKS = (HOST, SSD)


def example() -> Graph:
    """f0 makes A; f1 reads A, makes B; f2 reads B, makes C; b2 reads B, C, makes D; b1 reads A, D, makes E."""
    builder = Builder()
    ends = (5, 4, 4, 5, None)
    made = [
        builder.storage(n, birth=i, death=end) for i, (n, end) in enumerate(zip((6, 4, 2, 4, 3), ends, strict=True))
    ]
    a, b, c, d, e = made
    for reads, makes in (([], a), ([a], b), ([b], c), ([b, c], d), ([a, d], e)):
        builder.op(reads, [makes])
    return builder.graph()


TIMES, WORKSPACE = (4, 5, 3, 6, 5), (0, 0, 3, 0, 0)


def played(*steps: Step, budget: int | None = 13, serial: bool = False) -> TransferTimeline:
    graph = example()
    line = replay(
        graph,
        Plan(graph.index.digest, (Lane("cpu", steps),)),
        durations_ns=TIMES,
        links=LINKS,
        workspace=WORKSPACE,
        budget_bytes=budget,
        serial=serial,
    )
    assert isinstance(line, TransferTimeline)
    return line


C = Compute
PUBLISHED = (C(0), C(1), Offload(0, "host"), C(2), C(3), Fetch(0, "host"), C(4))


def test_the_published_example_has_its_times_lanes_and_stalls() -> None:
    line = played(*PUBLISHED)
    assert line.lanes == ("cpu", "host out", "host in", "ssd out", "ssd in")
    events = line.events
    columns = (events.kind, events.index, events.lane, events.start_ns, events.end_ns)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (Kind.RUN, 0, 0, 0, 4),
        (Kind.RUN, 1, 0, 4, 9),
        (Kind.OFFLOAD, 0, 1, 4, 11),
        (Kind.RUN, 2, 0, 11, 14),
        (Kind.RUN, 3, 0, 14, 20),
        (Kind.FETCH, 0, 2, 20, 27),
        (Kind.RUN, 4, 0, 27, 32),
    ]
    assert (line.makespan_ns, line.peak_bytes, line.figures.evictions, line.figures.base_ns) == (32, 13, 0, 23)
    assert [(stall.cause, stall.storage, stall.start_ns, stall.end_ns) for stall in line.stalls] == [
        ("room", 0, 9, 11),
        ("fetch", 0, 20, 27),
    ]
    assert line.resident.tolist() == [6, 10, 9, 10, 13]
    assert [(one.storage, one.nbytes) for one in line.alive(3)] == [(1, 4), (3, 4), (2, 2)]
    host = line.place("host")
    assert (host.time_ns.tolist(), host.total.tolist()) == ([0, 4, 27], [0, 6, 0])
    assert line.steady_ns == 32


def test_synchronous_transfers_are_issued_one_after_the_other() -> None:
    line = played(*PUBLISHED, serial=True)
    assert line.makespan_ns == 23 + 7 + 7
    assert {stall.cause for stall in line.stalls} == {"serial"}


def test_a_copy_alone_leaves_its_storage_where_it_is() -> None:
    line = played(C(0), Copy(0, "host"), C(1), Evict(0), C(2), C(3), Fetch(0, "host"), C(4))
    assert line.events.kind.tolist().count(Kind.COPY) == 1
    assert line.figures.evictions == 1


def test_an_early_fetch_finds_no_room() -> None:
    with pytest.raises(PlanError, match=r"step 5 does not fit: op 3 .* needs 4 bytes of the device, of whose 13 12"):
        played(C(0), C(1), Offload(0, "host"), C(2), Fetch(0, "host"), C(3), C(4))


def test_links_are_those_of_the_machine() -> None:
    with pytest.raises(PlanError, match=r"step 1 is .*tape.*: the machine has no such link, but host, ssd"):
        played(C(0), Offload(0, "tape"))
    graph = example()
    plan = Plan(graph.index.digest, (Lane("cpu", PUBLISHED),))
    with pytest.raises(PlanError, match="replay it with links="):
        replay(graph, plan)


def test_only_storages_of_its_device_are_moved_by_a_plan() -> None:
    builder = Builder()
    x = builder.storage(8, Role.INPUT, device="meta")
    builder.op([x], [builder.storage(4, birth=0)])
    graph = builder.graph()
    plan = Plan(graph.index.digest, (Lane("cpu", (Offload(0, "host"), C(0))),))
    with pytest.raises(PlanError, match="the storage is on meta, the links are those of cpu"):
        replay(graph, plan, links=LINKS)


@given(st.integers(0, 10**6), st.booleans())
def test_series_over_ops_and_over_time_are_those_of_the_played_plan(seed: int, serial: bool) -> None:
    chance = random.Random(seed)
    recording = random_recording(chance, chance.randint(2, 20))
    stated = instance(recording.graph, "cpu", recording.durations_ns, links=LINKS)
    steps, home = random_plan(chance, stated)
    plan = Plan(recording.graph.index.digest, (Lane("cpu", tuple(steps)),), home)
    try:
        line = replay(recording.graph, plan, durations_ns=recording.durations_ns, links=LINKS, serial=serial)
    except PlanError:
        assume(False)
    assume(isinstance(line, TransferTimeline))
    assert isinstance(line, TransferTimeline)
    validate(line.graph)
    assert line.graph == executed(recording.graph, plan)
    assert line.peak_bytes == line.played.peak_bytes
    assert sum(line.by_role.values(), start=0 * line.resident).tolist() == line.resident.tolist()
    for op in range(len(line.graph)):
        held = sum(one.nbytes for one in line.alive(op))
        assert held == line.resident[op] - line.by_role.get("workspace", 0 * line.resident)[op]
    assert_times(line)
    for name in (DEVICE, "host", "ssd"):
        over = line.place(name)
        assert (over.total >= 0).all()
        assert all(a < b for a, b in itertools.pairwise(over.time_ns.tolist()))
        assert sum(over.by_role.values(), start=0 * over.total).tolist() == over.total.tolist()


def assert_times(line: TransferTimeline) -> None:
    """Events are in order on each lane, and take the times of ops and of transfers."""
    events = line.events
    nbytes = [int(storage.nbytes) for storage in line.recorded.storages]
    free = [0] * len(line.lanes)
    for kind, index, lane, start, end in zip(
        *(c.tolist() for c in (events.kind, events.index, events.lane, events.start_ns, events.end_ns)), strict=True
    ):
        assert start >= free[lane] or kind == Kind.EVICT
        free[lane] = max(end, free[lane])
        link = LINKS[(lane - 1) // 2]
        if lane:
            assert (kind == Kind.FETCH) == (lane % 2 == 0)
            assert end - start == link.transfer_ns(nbytes[index], inwards=kind == Kind.FETCH)
        elif kind <= Kind.RECOMPUTE:
            assert end - start == line.problem.ops[index].ns
