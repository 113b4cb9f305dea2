"""One placement of a step, played: times, transfers, peaks, and the bytes of each link."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.placements.annealing.chain import Chain
from tensortide.placements.graphs.kernel.annealed import anneal
from tensortide.placements.graphs.kernel.ordered import played
from tensortide.placements.graphs.kernel.play import play
from tensortide.placements.graphs.kernel.records import Order, Run
from tensortide.placements.graphs.schedules import MicroBatchSchedule, Ordering
from tensortide.placements.graphs.tables import Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.memory.lifetimes import Ints

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Simulated:
    """A placed step as it was played. ``place``: the device of each unit.

    By op ``device``, ``start_ns``, ``end_ns``, when it was issued (``issued_ns``) and what that took its host
    (``issuing_ns``). By transfer over one lane ``sent`` (its value), ``send_lane``,
    ``send_target`` (the device that it is for), ``send_start_ns``, ``send_end_ns``. ``peak_bytes`` by device,
    ``moved_bytes`` by lane. ``free_copies``: copies that travel without a transfer. ``bucket``: of each collective that
    runs beside ops, the number of its bucket, of those of its device in the order of their launch.
    """

    step: Step
    place: tuple[int, ...]
    device: Ints
    start_ns: Ints
    end_ns: Ints
    issued_ns: Ints
    issuing_ns: Ints
    sent: Ints
    send_lane: Ints
    send_target: Ints
    send_start_ns: Ints
    send_end_ns: Ints
    peak_bytes: tuple[int, ...]
    moved_bytes: tuple[int, ...]
    makespan_ns: int
    free_copies: int
    bucket: Ints

    @property
    def busy_ns(self) -> tuple[int, ...]:
        """Time that each device runs ops, exchanges beside them not counted."""
        import numpy as np

        times = np.where(self.step.computes, self.end_ns - self.start_ns, 0)
        return tuple(int(times[self.device == d].sum()) for d in range(self.step.devices))

    @functools.cached_property
    def buckets(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For each device the collectives that run beside its ops, by bucket, in the order of their launch."""
        found: list[dict[int, list[int]]] = [{} for _ in range(self.step.devices)]
        for op, bucket in zip(self.step.tables.exchanges.ops.tolist(), self.bucket.tolist(), strict=True):
            found[int(self.device[op])].setdefault(bucket, []).append(op)
        return tuple(tuple(tuple(own[turn]) for turn in sorted(own)) for own in found)

    @property
    def over_bytes(self) -> tuple[int, ...]:
        """Bytes by which each device's peak is above its capacity."""
        capacities = [device.capacity_bytes for device in self.step.cluster.devices]
        return tuple(
            0 if limit is None else max(0, peak - limit)
            for peak, limit in zip(self.peak_bytes, capacities, strict=True)
        )


class Simulator:
    """Plays placements of one step; everything but the placement is prepared once. Not for use by several threads."""

    def __init__(self, step: Step, schedule: MicroBatchSchedule | None = None) -> None:
        import numpy as np

        self.step = step
        self.schedule = schedule or MicroBatchSchedule()
        writers = step.tables.writer
        following = [-1 if value.next < 0 else int(writers[value.next]) for value in step.values.values]
        self._following = np.array(following, np.int64)
        self._ordering = Ordering(step, self.schedule)
        limits = [device.capacity_bytes for device in step.cluster.devices]
        self.device_bytes = np.array([np.inf if limit is None else limit for limit in limits], np.float64)
        self._prepare()

    def _prepare(self) -> None:
        """Make what a run changes."""
        import numpy as np

        self._rules = self._ordering.rules(self.device_bytes)
        self._run = _scratch(self.step, self.schedule.micro_batches)
        self._place = np.zeros(len(self.step.units), np.int64)

    def another(self) -> Simulator:
        """One more simulator of the same, for another thread."""
        found = copy.copy(self)
        found._prepare()
        return found

    def play(self, place: Sequence[int] | NDArray[np.integer], order: Order | None = None) -> tuple[int, Run]:
        """The makespan of ``place`` in nanoseconds, and what the simulation filled in, until the next one.

        Raises PlanError if the order that is asked for cannot be kept.
        """
        import numpy as np

        places, step, run = np.ascontiguousarray(place, np.int64), self.step, self._run
        order = order or self._ordering.fixed(places)
        if order is None:
            played(step.tables, self._rules, run, places, self._following, step.devices)
        else:
            play(step.tables, order, run, places, self._following, step.devices)
        if run.totals[1] < len(step.graph):
            waiting = next(op for op, left in enumerate(run.pending.tolist()) if left > 0)
            raise PlanError(f"op {waiting} ({step.graph[waiting].name}) waits for ever: the order cannot be kept")
        return int(run.totals[2]), run

    @property
    def anneals(self) -> bool:
        """True if the compiled steps of annealing know the schedule."""
        return self.schedule.fixed is None or self.schedule.micro_batches == 1

    def anneal(self, chain: Chain, group_of: Ints, steps: int, penalty: float) -> int:
        """Take up to ``steps`` steps of ``chain``, see ``kernel.annealed``."""
        step = self.step
        scratch = (self._run, self._place, self._following, step.devices)
        taken: int = anneal(step.tables, self._rules, *scratch, penalty, group_of, chain, steps)
        return taken

    def run(self, place: Sequence[int] | NDArray[np.integer], order: Order | None = None) -> Simulated:
        """Play ``place`` and keep all of it."""
        makespan, run = self.play(place, order)
        count = int(run.totals[0])
        return Simulated(
            self.step,
            tuple(int(device) for device in place),
            run.device.copy(),
            run.start[: len(self.step.graph)].copy(),
            run.end[: len(self.step.graph)].copy(),
            run.issued.copy(),
            run.issuing.copy(),
            run.sent[:count].copy(),
            run.send_lane[:count].copy(),
            run.send_target[:count].copy(),
            run.send_start[:count].copy(),
            run.send_end[:count].copy(),
            tuple(run.peak.tolist()),
            tuple(run.moved.tolist()),
            makespan,
            int(run.totals[3]),
            run.bucket_turn[run.bucket[: len(self.step.tables.exchanges.ops)]],
        )


def _scratch(step: Step, micro_batches: int) -> Run:
    import numpy as np

    devices, lanes, ops = step.devices, len(step.cluster.lanes), len(step.graph)
    values, beside = step.values.values, step.tables.exchanges
    exchanges, streams, slots = len(beside.ops), devices * beside.streams, 2 * devices + lanes
    hops = max((len(way) for ways in step.cluster.routes for way in ways), default=0)
    sends = sum(min(len(value.readers), devices - 1) for value in values) * hops

    def ints(count: int) -> Ints:
        return np.zeros(max(count, 1), np.int64)

    return Run(
        start=ints(ops),
        end=ints(ops),
        sent=ints(sends),
        send_lane=ints(sends),
        send_target=ints(sends),
        send_start=ints(sends),
        send_end=ints(sends),
        peak=np.zeros(devices, np.int64),
        moved=np.zeros(lanes, np.int64),
        totals=ints(4),
        device=np.zeros(ops, np.int64),
        pending=np.zeros(ops, np.int64),
        rest=ints(len(step.tables.home)),
        copies=ints(len(values) * devices),
        level=ints(devices),
        heap=ints(ops),
        heap_at=ints(devices + 1),
        heap_count=ints(devices),
        later=ints(ops),
        later_at=ints(devices + 1),
        later_count=ints(devices),
        busy_end=ints(slots),
        busy_item=ints(slots),
        queue_head=ints(lanes),
        queue_tail=ints(lanes),
        next_send=ints(sends),
        send_hop=ints(max(sends, len(values))),
        send_source=ints(sends),
        left=ints(devices * max(micro_batches, 1)),
        oldest=ints(devices),
        bucket=ints(exchanges),
        bucket_bytes=ints(exchanges),
        bucket_ns=ints(exchanges),
        bucket_left=ints(exchanges),
        bucket_after=ints(exchanges),
        bucket_turn=ints(exchanges),
        due=ints(devices),
        last_bucket=ints(devices),
        open=ints(streams),
        begun=ints(streams),
        filled=ints(streams),
        part=ints(slots),
        whole=ints(slots),
        load=ints(1 + int(beside.channel.max(initial=0))),
        issued=np.zeros(ops, np.int64),
        issuing=np.zeros(ops, np.int64),
        host=ints(devices),
        launch=ints(devices),
        clear=ints(devices),
        seen=ints(devices),
    )
