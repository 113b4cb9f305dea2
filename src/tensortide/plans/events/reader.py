"""The record of a plan's tasks read: times of its steps, why ops waited, and the bytes of every place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from heapq import heappop, heappush

from tensortide.plans.events.played import NOTHING, Change, Played, Stall
from tensortide.plans.events.primitives import Primitives
from tensortide.plans.events.writer import COMPUTE, ON_DEVICE, Writer
from tensortide.plans.instance import DEVICE
from tensortide.play import FREE, NOWHERE, RUN, Record, Rules
from tensortide.play.tasks import MAKESPAN


class Reader:
    """Reads the record ``r`` of what ``writer`` wrote for the steps ``written``."""

    def __init__(self, writer: Writer, written: Primitives, r: Record, rules: Rules) -> None:
        self.writer, self.written, self.r, self.rules = writer, written, r, rules
        self.tasks = writer.list.tasks
        self.lanes = [DEVICE, *writer.engines]

    def read(self) -> Played:
        """Read times, stalls and bytes."""
        writer, r, instance = self.writer, self.r, self.writer.instance
        main, lanes = writer.main, [self.tasks.lane[task] for task in writer.main]
        frees = [self.tasks.kind[task] == FREE for task in main]
        busy, moved = dict.fromkeys(writer.engines, 0), dict.fromkeys(writer.engines, 0)
        for task, lane, step in zip(main, lanes, self.written.steps, strict=True):
            if lane > COMPUTE:
                busy[self.lanes[lane]] += self.tasks.ns[task]
                moved[self.lanes[lane]] += writer.size[step.storage]  # type: ignore[union-attr]
        runs_ns = sum(self.tasks.ns[task] for task, lane in zip(main, lanes, strict=True) if lane == COMPUTE)
        stalls = tuple(self._stalls())
        peaks = dict(zip(writer.places, r.peak, strict=True))
        return Played(
            steps=tuple(self.written.steps),
            origin=tuple(self.written.origin),
            unsaid=tuple(self.written.unsaid),
            issue_ns=tuple([r.issue[task] for task in main]),
            start_ns=tuple([(r.issue if free else r.start)[task] for task, free in zip(main, frees, strict=True)]),
            end_ns=tuple([(r.issue if free else r.end)[task] for task, free in zip(main, frees, strict=True)]),
            engine=tuple(["" if lane == NOWHERE else self.lanes[lane] for lane in lanes]),
            resident_bytes=tuple(self._resident()),
            makespan_ns=r.totals[MAKESPAN],
            base_ns=instance.base_ns,
            recompute_ns=runs_ns - instance.base_ns,
            stall_ns=sum(stall.end_ns - stall.start_ns for stall in stalls),
            tail_ns=r.totals[MAKESPAN] - r.free[COMPUTE],
            stalls=stalls,
            peak_bytes=peaks.pop(DEVICE),
            tier_peak_bytes=peaks,
            busy_ns=busy,
            moved_bytes=moved,
            before_bytes=writer.before,
            changes=self._changes(),
        )

    def _changes(self) -> dict[str, tuple[Change, ...]]:
        found: dict[str, list[Change]] = {name: [] for name in self.writer.places}
        for place, nbytes, storage, step, task in self.writer.held:
            at = self.r.issue[task] if nbytes > 0 else self.r.end[task]
            found[place].append(Change(at, nbytes, storage, step))
        return {name: tuple(changes) for name, changes in found.items()}

    def _resident(self) -> Iterator[int]:
        """Yield the bytes on the device right after the issue of each step."""
        t, level, due = self.tasks, self.writer.before[DEVICE], list[tuple[int, int]]()
        task = 0
        for last in self.writer.main:
            for each in range(task, last + 1):
                if t.place[each] == ON_DEVICE and t.kind[each] == FREE:
                    heappush(due, (self.r.end[each], t.nbytes[each]))
                elif t.place[each] == ON_DEVICE:
                    level += t.nbytes[each]
            task = last + 1
            while due and due[0][0] <= self.r.issue[last]:
                level -= heappop(due)[1]
            yield level

    def _stalls(self) -> Iterator[Stall]:
        """Yield, for each op that starts after the end of the op before it, what was waited for since then."""
        r, kind = self.r, self.tasks.kind
        issued = computed = makespan = 0
        last = NOTHING
        waits: list[Stall] = []
        for number, task in enumerate(self.writer.main):
            if self.rules.serial and makespan > issued:
                waits.append(Stall(NOTHING, issued, makespan, "serial", last, NOTHING, number))
                issued = makespan
            if kind[task] == RUN:
                issued = max(issued, computed)
                if task in self.writer.reasons and (wait := self._needed(number, task, issued)) is not None:
                    waits.append(wait)
                    issued = wait.end_ns
            if r.issue[task] > issued:
                waits.append(self._no_room(number, task, issued))
                issued = r.issue[task]
            if kind[task] == RUN:
                for wait in waits:
                    if wait.end_ns > computed:
                        yield wait._replace(step=number, start_ns=max(wait.start_ns, computed))
                waits.clear()
                computed = r.end[task]
            if kind[task] != FREE and r.end[task] > makespan:
                makespan, last = r.end[task], number

    def _needed(self, number: int, task: int, asked: int) -> Stall | None:
        """The wait of an op for the last of what it needs, from ``asked`` on."""
        t, found = self.tasks, None
        needs = t.need[t.need_ends[task] : t.need_ends[task + 1]]
        for need, (cause, storage) in zip(needs, self.writer.reasons[task], strict=True):
            end = self.r.end[need]
            if end > (asked if found is None else found.end_ns):
                found = Stall(NOTHING, asked, end, cause, self.writer.step_of[need], storage, number)
        return found

    def _no_room(self, number: int, task: int, asked: int) -> Stall:
        """The wait of a step for room, from ``asked`` on."""
        place, at = self.tasks.place[task], self.r.issue[task]
        _, storage, by = min(each for before, each in self._releases[place, at] if before < task)
        return Stall(NOTHING, asked, at, "room", by, storage, number, [*self.writer.places][place])

    @cached_property
    def _releases(self) -> dict[tuple[int, int], list[tuple[int, tuple[int, int, int]]]]:
        """By place and time the releases, each with its task: bytes, storage, and the last step that touches it."""
        found = defaultdict(list)
        for place, nbytes, storage, _, task in self.writer.held:
            if nbytes < 0:
                key = self.writer.places[place], self.r.end[task]
                found[key].append((task, (-nbytes, storage, self._last_user(task))))
        return found

    def _last_user(self, task: int) -> int:
        """The step that ends last of those which a release waits for, the first of equals."""
        t = self.tasks
        needs = t.need[t.need_ends[task] : t.need_ends[task + 1]]
        return self.writer.step_of[max(needs, key=lambda need: self.r.end[need])] if needs else NOTHING
