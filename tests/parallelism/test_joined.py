"""Steps of ranks, joined: what ranks exchange is matched, and each waits for those that it meets."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from tensortide import GraphBuilder
from tensortide.errors import CaptureError
from tensortide.graph.model import Graph
from tensortide.graph.ways import Way, peers, rank_of
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.joined import JoinedPlay, JoinedStep, RankWork, joined
from tensortide.parallelism.meetings import Meeting, meetings
from tensortide.timelines.machines import step_on
from tensortide.timelines.step import OpTimes
from tensortide.timing import estimate
from tensortide.timing.collectives import nodes_of, predict_collective
from tensortide.timing.estimates import Estimate
from tests.graphs.files import stored

RANKS, STORAGES = 3, 5


def conflict(work: RankWork, one: int, other: int) -> bool:
    """True if one of two ops writes what the other touches."""
    return any({*work.touches[a]} & {*work.writes[b]} for a, b in ((one, other), (other, one)))


class Job:
    """Work of ranks by the rule, without a player: every nanosecond all that can begin does."""

    def __init__(self, works: dict[int, RankWork], met: list[Meeting], ns: list[int]) -> None:
        self.works, self.met, self.ns = works, met, ns
        self.issued: dict[tuple[int, int], int] = {}
        self.ran: dict[tuple[int, int], int] = {}
        self.over: dict[int, int] = {}

    def end(self) -> int:
        for now in range(10_000):
            while self._begin(now):
                pass
            if len(self.ran) == sum(len(work.touches) for work in self.works.values()) and len(self.over) == len(
                self.met
            ):
                return max(*self.issued.values(), *self.ran.values(), *self.over.values())
        raise AssertionError("it waits for ever")

    def _begin(self, now: int) -> bool:
        begun = False
        for rank, work in self.works.items():
            host = sum(1 for each in self.issued if each[0] == rank)
            if host < len(work.touches) and self._host_free(rank, host, now):
                self.issued[rank, host] = now + work.clocks.host[host]
                begun = True
            for stream in {*work.streams}:
                ops = [op for op, own in enumerate(work.streams) if own == stream and (rank, op) not in self.ran]
                if ops and self._device_free(rank, ops[0], now):
                    self.ran[rank, ops[0]] = now + work.clocks.device[ops[0]] + work.clocks.after[ops[0]]
                    begun = True
        for number, meeting in enumerate(self.met):
            if number not in self.over and self._all_there(number, meeting, now):
                self.over[number] = now + self.ns[number]
                begun = True
        return begun

    def _host_free(self, rank: int, op: int, now: int) -> bool:
        if not op:
            return True
        waits = self.works[rank].clocks.waits[op - 1] and self.ran.get((rank, op - 1), now + 1) > now
        return self.issued[rank, op - 1] <= now and not waits

    def _device_free(self, rank: int, op: int, now: int) -> bool:
        streams = self.works[rank].streams
        before = [each for each in range(op) if streams[each] == streams[op]]
        there = self.issued.get((rank, op), now + 1) <= now and all(self.ran[rank, each] <= now for each in before)
        meets = any(meeting.ops.get(rank) == op for meeting in self.met)
        return there and (meets or self._data_there(rank, op, now))

    def _data_there(self, rank: int, op: int, now: int) -> bool:
        own, work = set(self.works[rank].touches[op]), self.works[rank]
        writers = [max((each for each in range(op) if storage in work.writes[each]), default=op) for storage in own]
        if any(self.ran.get((rank, each), now + 1) > now for each in writers if work.streams[each] != work.streams[op]):
            return False
        earlier = [
            number
            for number, meeting in enumerate(self.met)
            if rank in meeting.ops and meeting.ops[rank] < op and conflict(work, meeting.ops[rank], op)
        ]
        return all(self.over.get(number, now + 1) <= now for number in earlier)

    def _all_there(self, number: int, meeting: Meeting, now: int) -> bool:
        before = [other for other in range(number) if self.met[other].way == meeting.way]
        return all(self.over.get(other, now + 1) <= now for other in before) and all(
            self.ran.get((rank, op), now + 1) <= now and self._data_there(rank, op, now)
            for rank, op in meeting.ops.items()
        )


def made_job(seed: int) -> tuple[dict[int, RankWork], list[Meeting], list[int]]:
    """Ranks with ops of their own, and collectives and messages among them in an order that all keep."""
    chance = random.Random(seed)
    touches: list[list[list[int]]] = [[] for _ in range(RANKS)]
    met: list[Meeting] = []
    for _ in range(18):
        members = chance.sample(range(RANKS), chance.choice((1, 1, 2, 3)))
        for rank in members:
            touches[rank].append(chance.sample(range(STORAGES), 2))
        if len(members) == 2:
            way = Way(tuple(range(RANKS)), 0, *members)
            met.append(Meeting(way, "send_recv", 8, {rank: len(touches[rank]) - 1 for rank in members}))
        elif len(members) == RANKS:
            way = Way(tuple(range(RANKS)), chance.randrange(2))
            met.append(Meeting(way, "all_reduce", 8, {rank: len(touches[rank]) - 1 for rank in members}))
    works = {}
    for rank, own in enumerate(touches):
        host, device, after = ([chance.randrange(low, 6) for _ in own] for low in (1, 0, 0))
        waits = [chance.random() < 0.2 for _ in own]
        writes = [touched[chance.randrange(2) :] for touched in own]
        streams = [chance.randrange(1 + seed % 3) for _ in own]
        works[rank] = RankWork(OpTimes(host, device, waits, after), own, writes, streams)
    return works, met, [chance.randrange(1, 12) for _ in met]


@pytest.mark.parametrize("seed", range(20))
def test_the_joined_step_ends_when_one_does_that_begins_all_that_it_can(seed: int) -> None:
    works, met, ns = made_job(seed)
    assert max(JoinedPlay(works, met, ns).played().end) == Job(works, met, ns).end()


def test_ranks_that_wait_for_each_other_are_named() -> None:
    ways = [Way((0, 1), 0), Way((0, 1), 1)]
    met = [Meeting(ways[0], "all_reduce", 8, {0: 0, 1: 1}), Meeting(ways[1], "all_reduce", 8, {0: 1, 1: 0})]
    clocks = OpTimes([1, 1], [0, 0], [False, False], [0, 0])
    # Each has the result of its first collective as the input of its second.
    works = {rank: RankWork(clocks, [[0], [0]], [[0], [0]], [0, 0]) for rank in (0, 1)}
    with pytest.raises(CaptureError, match="ranks wait for each other"):
        JoinedPlay(works, met, [5, 5]).played()


def ended_ns(touches: list[list[int]], device: list[int], waits: bool = False) -> int:
    """When the step of one rank ends: a collective of 100 ns from storage 0 to storage 1, and ops that write the last
    storage they touch; the host waits for the first of these or for none."""
    met = [Meeting(Way((0, 1), 0), "all_reduce", 8, {0: 0})]
    clocks = OpTimes([0] * 3, [0, *device], [False, waits, False], [0] * 3)
    every = [[0, 1], *touches]
    return JoinedPlay({0: RankWork(clocks, every, [each[-1:] for each in every], [0] * 3)}, met, [100]).scaled()


def test_a_collective_of_one_captured_rank_runs_beside_ops_that_do_not_need_it() -> None:
    assert ended_ns([[0, 2], [1, 2, 3]], [30, 5]) == 105
    assert ended_ns([[0, 2], [1, 2, 3]], [130, 5]) == 135
    assert ended_ns([[2, 0], [0, 3]], [30, 5]) == 135  # writes what is sent
    assert ended_ns([[1, 2], [0, 3]], [0, 5], waits=True) == 105  # the host issues nothing meanwhile


def test_a_stream_waits_for_what_another_one_wrote_and_for_nothing_else() -> None:
    clocks = OpTimes([0] * 3, [40, 30, 5], [False] * 3, [0] * 3)
    for read, end in (([1], 45), ([2], 40), ([3], 40)):
        work = RankWork(clocks, [[1], [2], read], [[1], [2], []], [0, 1, 2])
        assert JoinedPlay({0: work}, [], []).scaled() == end


def test_the_rank_of_a_step_is_in_all_of_its_groups_and_sends_itself_nothing() -> None:
    for stage, graph in enumerate(per_rank(stored("gpt2"), Degrees(pipeline=2)).graphs):
        assert rank_of(graph) == stage


@pytest.fixture(scope="module")
def stages() -> dict[int, Graph]:
    found = per_rank(stored("gpt2"), Degrees(pipeline=2))
    return dict(enumerate(found.graphs))


def test_messages_of_stages_are_matched(stages: dict[int, Graph]) -> None:
    assert [peers(rank, graph) for rank, graph in stages.items()] == [{1}, {0}]
    found = [meeting for meeting in meetings(stages) if meeting.kind == "send_recv"]
    assert {(meeting.way.sender, meeting.way.receiver) for meeting in found} == {(0, 1), (1, 0)}
    assert all(meeting.ops.keys() == {0, 1} for meeting in found)


def test_a_stage_waits_for_the_message_of_the_one_before(stages: dict[int, Graph]) -> None:
    nodes = nodes_of("H100-SXM-80GB", devices_per_node=2)
    step = joined(stages, {rank: estimate(graph, nodes.device) for rank, graph in stages.items()}, nodes)
    alone = max(line.makespan_ns for line in step.lines.values())
    assert alone <= step.step_time.time_ns < sum(line.makespan_ns for line in step.lines.values())
    assert step.step_time.low_ns < step.step_time.time_ns < step.step_time.high_ns
    for rank, line in step.lines.items():
        found = step.rank(rank)
        assert found.busy_ns == line.busy_ns
        assert 0 <= found.waiting_ns <= found.end_ns - found.busy_ns
    assert step.rank(0).waiting_ns > 0  # for gradients


def test_what_does_not_match_is_named(stages: dict[int, Graph]) -> None:
    ops = [op for op in stages[1] if op.name.startswith("c10d.recv")]
    short = structs.replace(stages[1], ops=tuple(op for op in stages[1].ops if op is not ops[-1].op))
    with pytest.raises(CaptureError, match=r"rank 0 waits in send_recv of .* from rank 0 to rank 1, for rank 1, which"):
        meetings({0: stages[0], 1: short})


def reducing(*sizes: int, kind: str = "all_reduce") -> Graph:
    """A step of a rank with a collective of so many numbers after the other, in two groups of the same ranks."""
    build = GraphBuilder("step")
    for number, size in enumerate(sizes):
        name = f"_c10d_functional.{kind}.default"
        build.op(name, build.input(f"x{number}", (size,)), out=(size,), arguments={"group_name": "ab"[number % 2]})
    graph = build.build()
    return structs.replace(graph, meta=structs.replace(graph.meta, groups={"a": (0, 1, 2), "b": (0, 1, 2)}))


def test_two_groups_of_the_same_ranks_are_matched_apart() -> None:
    first, second = meetings({0: reducing(4, 8), 1: reducing(4, 8)})
    assert (first.ops, second.ops) == ({0: 0, 1: 0}, {0: 1, 1: 1})
    assert first.way != second.way
    assert first.ranks == second.ranks == (0, 1, 2)


def test_bytes_of_what_all_have_must_agree_and_the_largest_part_counts_of_what_is_divided() -> None:
    with pytest.raises(CaptureError, match=r"rank 0 waits in all_reduce of 16 bytes .* but rank 1 waits in all_reduce"):
        meetings({0: reducing(4), 1: reducing(8)})
    gathers = {rank: reducing(size, kind="all_gather_into_tensor") for rank, size in enumerate((5, 4))}
    [found] = meetings(gathers)
    assert found.nbytes == 20
    nodes = nodes_of("H100-SXM-80GB", devices_per_node=4)
    step = joined(gathers, {rank: estimate(graph, nodes.device) for rank, graph in gathers.items()}, nodes)
    # Parts of three ranks are equal: 21 bytes are moved.
    assert step.times[0].time_ns == predict_collective("all_gather", 21, 3, nodes).estimate.time_ns


@pytest.mark.parametrize(
    "groups", [{"a": (0, 1, 2, 3), "b": (0, 1)}, {"a": (0, 1, 2, 3), "b": (0, 2)}, {"a": (0, 1, 2, 3)}]
)
def test_a_rank_alone_takes_as_long_in_each_collective_as_in_the_job(groups: dict[str, tuple[int, ...]]) -> None:
    graph = reducing(2**20, 2**20, 3 * 2**20, 2**22)
    graph = structs.replace(graph, meta=structs.replace(graph.meta, groups=groups))
    nodes = nodes_of("H100-SXM-80GB", devices_per_node=2, nodes=2)
    times = joined({0: graph}, {0: estimate(graph, nodes.device)}, nodes).times
    by_op = {m.ops[0]: round(time.time_ns) for m, time in zip(meetings({0: graph}), times, strict=True)}
    assert dict(enumerate(step_on(graph, nodes).durations.ns)) == by_op
    if groups.get("b") == (0, 1):  # within a node
        assert by_op[1] < by_op[0]


def test_a_rank_waits_for_data_and_not_for_its_host() -> None:
    clocks = OpTimes([10, 10], [0, 30], [False, False], [0, 0])
    met = [Meeting(Way((0, 1), 0), "all_reduce", 8, {0: 0})]
    for ns, waiting in ((25, 15), (5, 0)):
        play = JoinedPlay({0: RankWork(clocks, [[0], [0]], [[0], [0]], [0, 0])}, met, [ns])
        found = JoinedStep({}, met, [Estimate(ns)], play).rank(0)
        assert (found.busy_ns, found.waiting_ns, found.end_ns) == (30, waiting, 50 + waiting)
