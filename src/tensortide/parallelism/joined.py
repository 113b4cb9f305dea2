"""The steps of captured ranks of a job, one or several, joined to one: each rank waits for those that it meets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec

from tensortide.errors import CaptureError
from tensortide.graph.collectives import COLLECTIVES
from tensortide.graph.model import Graph
from tensortide.graph.ways import Way
from tensortide.parallelism.meetings import Meeting, meetings
from tensortide.play import RUN, Record, TaskList, Tasks, played
from tensortide.shown import Show
from tensortide.timelines.machines import with_times
from tensortide.timelines.step import HOST_ENDS, OpTimes, Side, StepTimeline, step_timeline
from tensortide.timing.collectives import Nodes, predict_collective
from tensortide.timing.durations import Durations
from tensortide.timing.estimates import UNKNOWN, Estimate, Provenance


class RankWork(NamedTuple):
    """Work of a rank: the times of its ops without its meetings, and for each op the storages that it touches, those of
    them that it writes, and its stream."""

    clocks: OpTimes
    touches: Sequence[Sequence[int]]
    writes: Sequence[Sequence[int]]
    streams: Sequence[int]


def work_of(graph: Graph, clocks: OpTimes) -> RankWork:
    """Return the work of the step ``graph``. An op runs on the stream that has its result."""
    index = graph.index
    writes = [[*{*own, *index.allocated[op]}] for op, own in enumerate(index.writes)]
    touches = [[*{*own, *writes[op]}] for op, own in enumerate(index.reads)]
    streams = [next((graph.storages[index.owner[each]].stream for each in op.outputs), 0) for op in graph.ops]
    return RankWork(clocks, touches, writes, streams)


class JoinedPlay:
    """Tasks of all ranks and their meetings, on the player.

    Op i of a rank has two tasks: the host issues it, the device runs it, after those before it on its stream and those
    of other streams that wrote what it touches. A meeting starts when all of its ranks have issued their op, the
    streams of these have done what was issued before it, and the meeting before it on its way is over. An op that
    touches what a meeting writes, or writes what it reads, waits for it; others go on meanwhile.
    """

    def __init__(self, works: Mapping[int, RankWork], found: Sequence[Meeting], ns: Sequence[int]) -> None:
        self.works, self.meetings = works, found
        self._first: dict[int, int] = {}
        count = self.lanes = 0
        for rank, work in works.items():
            self._first[rank] = count
            count += 2 * len(work.touches)
        self._number = {(rank, op): n for n, meeting in enumerate(found) for rank, op in meeting.ops.items()}
        self._needs: list[list[int]] = [[] for _ in found]
        self.first_meeting = count
        self.tasks = self._written(ns)

    def run(self, rank: int, op: int) -> int:
        """The task of the device for an op; that of the host is the one before."""
        return self._first[rank] + 2 * op + 1

    def _written(self, ns: Sequence[int]) -> Tasks:
        tasks = TaskList()

        def lane() -> int:
            # Each lane is a queue of its own, so that both have one number.
            self.lanes = tasks.new_queue() + 1
            return self.lanes - 1

        for rank, work in self.works.items():
            host, devices = lane(), {stream: lane() for stream in sorted({*work.streams})}
            for op, needs in enumerate(self._waits(rank, work)):
                waits = [self.run(rank, op - 1)] if op and work.clocks.waits[op - 1] else []
                issued = tasks.add(RUN, host, work.clocks.host[op], waits, queue=host)
                busy, device = work.clocks.device[op] + work.clocks.after[op], devices[work.streams[op]]
                tasks.add(RUN, device, busy, [issued, *needs], queue=device)
        ways: dict[Way, int] = {}
        # The player numbers tasks as they are added, whatever their queue.
        for n, meeting in enumerate(self.meetings):
            if meeting.way not in ways:
                ways[meeting.way] = lane()
            ready = [self.run(rank, op) for rank, op in meeting.ops.items()]
            tasks.add(RUN, ways[meeting.way], ns[n], [*ready, *self._needs[n]], queue=ways[meeting.way])
        return tasks.tasks

    def _waits(self, rank: int, work: RankWork) -> Iterator[Iterable[int]]:
        """Yield for each op of a rank the tasks that it waits for: of meetings, and of ops on other streams; those that
        a meeting waits for are noted with it."""
        writing: dict[int, int] = {}
        reading: dict[int, set[int]] = defaultdict(set)
        written: dict[int, int] = {}
        for op, touched in enumerate(work.touches):
            met = {writing[storage] for storage in touched if storage in writing}
            met.update(*(reading.pop(storage, ()) for storage in work.writes[op]))
            writers = {written[storage] for storage in touched if storage in written}
            needs = {self.run(rank, each) for each in writers if work.streams[each] != work.streams[op]}
            needs |= {self.first_meeting + each for each in met}
            written.update(dict.fromkeys(work.writes[op], op))
            own = self._number.get((rank, op))
            if own is None:
                yield needs
                continue
            self._needs[own] += needs
            writing.update(dict.fromkeys(work.writes[op], own))
            for storage in touched:
                reading[storage].add(own)
            yield ()

    def played(self) -> Record:
        """Play all tasks. Raises CaptureError if ranks wait for each other in a circle."""
        record = played(self.tasks, self.lanes)
        if min(record.end, default=0) < 0:
            raise CaptureError(f"ranks wait for each other: {'; '.join(self._stuck(record))}")
        return record

    def _stuck(self, record: Record) -> Iterator[str]:
        for rank, work in self.works.items():
            op = next((op for op in range(len(work.touches)) if record.end[self.run(rank, op)] < 0), None)
            if op is not None:
                yield f"rank {rank} at op {op}"

    def scaled(self, *, device: float = 1.0, host: float = 1.0, meeting: float = 1.0) -> int:
        """The makespan, at least 1, if ops, their issue or meetings took so many times as long."""
        own = [factor for _ in range(self.first_meeting // 2) for factor in (host, device)]
        factors = [*own, *[meeting] * len(self.meetings)]
        ns = [round(ns * factor) for ns, factor in zip(self.tasks.ns, factors, strict=True)]
        return max(1, max(played(self.tasks._replace(ns=ns), self.lanes).end, default=0))


class RankTime(NamedTuple):
    """A rank in the joined step: how long its device runs ops, how long its first stream waits for what the rank meets,
    and when all is done."""

    busy_ns: int
    waiting_ns: int
    end_ns: int


class ExchangeRow(msgspec.Struct, frozen=True):
    """Meetings of a kind, each among so many ``ranks``, of the captured ranks: their groups, how many they are, and in
    total their bytes, as ``timing.collectives`` counts them, and their time (None: not known)."""

    kind: Annotated[str, Show("Collective")]
    ranks: Annotated[int, Show("Ranks")]
    groups: Annotated[int, Show("groups")]
    calls: Annotated[int, Show("calls")]
    total_bytes: Annotated[int, Show("Bytes")]
    time_ns: Annotated[int | None, Show("Time")]


@dataclass(frozen=True)
class JoinedStep:
    """A step of a job: the Timeline of each captured rank, and what these do together."""

    lines: Mapping[int, StepTimeline]
    meetings: Sequence[Meeting]
    times: Sequence[Estimate]
    play: JoinedPlay

    @cached_property
    def record(self) -> Record:
        """The record of the player."""
        return self.play.played()

    @cached_property
    def step_time(self) -> Estimate:
        """The time until the last rank is done. Its interval has what that becomes at the ends of the intervals of
        ops, hosts and meetings, which are independent."""
        ns = max(1, max(self.record.end, default=0))
        ops = sum((line.ops for line in self.lines.values()), Estimate())
        met = sum(self.times, Estimate())
        hosts = any(line.host.issue_ns for line in self.lines.values())

        def half(side: Side) -> float:
            ends = [self.play.scaled(host=HOST_ENDS[side])] if hosts else []
            for whole, name in ((ops, "device"), (met, "meeting")):
                end = whole.low_ns if side == "below" else whole.high_ns
                ends += [self.play.scaled(**{name: end / whole.time_ns})] if whole.time_ns else []
            return math.hypot(*(math.log(end / ns) for end in ends))

        provenance = min(max(ops.provenance, met.provenance), Provenance.PHYSICS)
        found = Estimate.of(ns, half("below"), half("above"), provenance, "step")
        unknown = ops.unknown + met.unknown
        return found + Estimate(unknown=unknown) if unknown else found

    @property
    def computing_ns(self) -> int:
        """The time until the last rank is done if meetings took none."""
        return self.play.scaled(meeting=0.0)

    @property
    def exchanged(self) -> tuple[ExchangeRow, ...]:
        """The meetings, by kind and number of ranks."""
        found: dict[tuple[str, int], list[int]] = {}
        for number, meeting in enumerate(self.meetings):
            found.setdefault((meeting.kind, len(meeting.ranks)), []).append(number)
        return tuple(self._row(*key, numbers) for key, numbers in found.items())

    def _row(self, kind: str, ranks: int, numbers: Sequence[int]) -> ExchangeRow:
        met, time = [self.meetings[number] for number in numbers], sum((self.times[n] for n in numbers), Estimate())
        total_bytes, groups = sum(meeting.nbytes for meeting in met), len({meeting.way for meeting in met})
        return ExchangeRow(kind, ranks, groups, len(met), total_bytes, None if time.unknown else round(time.time_ns))

    def rank(self, rank: int) -> RankTime:
        """Return the times of a rank."""
        record, tasks = self.record, [self.play.run(rank, op) for op in range(len(self.play.works[rank].touches))]
        busy = sum(record.end[task] - record.start[task] for task in tasks)
        return RankTime(busy, sum(self.waits(rank).values()), max((record.end[task] for task in tasks), default=0))

    def waits(self, rank: int) -> dict[int, int]:
        """Return the time that the first stream of a rank waits for each meeting, by its number: where an op waits for
        several, itself or through other streams, for the one that is over last."""
        record, work, free = self.record, self.play.works[rank], 0
        found: dict[int, int] = defaultdict(int)
        for op in range(len(work.touches)):
            if work.streams[op]:
                continue
            task = self.play.run(rank, op)
            last, ready = self._last_need(task), max(free, record.end[task - 1])
            if last is not None and (ns := min(record.end[last], record.start[task]) - ready) > 0:
                while last is not None and last < self.play.first_meeting:
                    last = self._last_need(last)
                if last is not None:
                    found[last - self.play.first_meeting] += ns
            free = record.end[task]
        return found

    def _last_need(self, task: int) -> int | None:
        """The task that is over last of those that one of a device waits for, after its host has issued it."""
        needs, ends = self.play.tasks.need, self.play.tasks.need_ends
        return max(needs[ends[task] + 1 : ends[task + 1]], key=self.record.end.__getitem__, default=None)


def joined(graphs: Mapping[int, Graph], durations: Mapping[int, Durations], nodes: Nodes) -> JoinedStep:
    """Join the steps of the ranks ``graphs`` (without loops), whose ops take these ``durations``, on ``nodes``.

    Raises CaptureError where their collectives and messages do not match.
    """
    found = meetings(graphs)
    times = [_time(meeting, nodes) for meeting in found]
    lines, works = {}, {}
    for rank, graph in graphs.items():
        own = dict.fromkeys((meeting.ops[rank] for meeting in found if rank in meeting.ops), Estimate())
        line = step_timeline(graph, with_times(durations[rank], own), nodes.device)
        lines[rank], works[rank] = line, work_of(graph, line.clocks)
    play = JoinedPlay(works, found, [round(time.time_ns) for time in times])
    return JoinedStep(lines, found, times, play)


def _time(meeting: Meeting, nodes: Nodes) -> Estimate:
    row = COLLECTIVES.get(meeting.kind)
    if row is None:
        return UNKNOWN
    nbytes = row.padded(meeting.nbytes, len(meeting.ranks))
    return predict_collective(row.name, nbytes, meeting.ranks, nodes).estimate
