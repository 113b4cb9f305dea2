"""One placement of a step, played: times, transfers, peaks, and the bytes of each link."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensortide.errors import PlanError
from tensortide.placements.annealing.chain import Chain
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.kernel.annealed import anneal
from tensortide.placements.graphs.kernel.ordered import play, played
from tensortide.placements.graphs.kernel.records import Draft, Order, Run
from tensortide.placements.graphs.schedules import MicroBatchSchedule, Ordering
from tensortide.placements.graphs.tables import Step
from tensortide.play.rates import Shares
from tensortide.play.ready import ENDED, Hosts, Ready
from tensortide.play.tasks import MAKESPAN, MOVE, Tasks


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
        self.step = step
        self.schedule = schedule or MicroBatchSchedule()
        self._ordering = Ordering(step, self.schedule)
        limits = [device.capacity_bytes for device in step.cluster.devices]
        self.device_bytes = np.array([np.inf if limit is None else limit for limit in limits], np.float64)
        self._prepare()

    def _prepare(self) -> None:
        """Make what a run changes."""
        self._rules = self._ordering.rules(self.device_bytes)
        self._run = scratch(self.step, self.schedule.micro_batches)
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
        places, step, run = np.ascontiguousarray(place, np.int64), self.step, self._run
        order = order or self._ordering.fixed(places)
        if order is None:
            played(step.tables, self._rules, run, places, step.devices)
        else:
            play(step.tables, order, run, places, step.devices)
        if run.record.totals[ENDED] < run.tasks.queue_ends[1]:
            waiting = next(op for op, end in enumerate(run.record.end.tolist()) if end < 0)
            raise PlanError(f"op {waiting} ({step.graph[waiting].name}) waits for ever: the order cannot be kept")
        return int(run.record.totals[MAKESPAN]), run

    @property
    def anneals(self) -> bool:
        """True if the compiled steps of annealing know the schedule."""
        return self.schedule.fixed is None or self.schedule.micro_batches == 1

    def anneal(self, chain: Chain, group_of: Ints, steps: int, penalty: float) -> int:
        """Take up to ``steps`` steps of ``chain``, see ``kernel.annealed``."""
        given = self.step.tables, self._rules, self._run, self._place, self.step.devices
        taken: int = anneal(*given, penalty, group_of, chain, steps)
        return taken

    def run(self, place: Sequence[int] | NDArray[np.integer], order: Order | None = None) -> Simulated:
        """Play ``place`` and keep all of it."""
        makespan, run = self.play(place, order)
        step, r, w, ops = self.step, run.record, run.draft, len(self.step.graph)
        device, issued, issuing = (each[:ops].copy() for each in (w.device, run.hosts.issued, run.hosts.issuing))
        # An exchange began and ended with its bucket.
        exchanges, at = step.tables.exchanges.ops, np.arange(ops)
        bucket = at[exchanges] = w.bucket_task[w.bucket[: len(exchanges)]]
        first = w.bucket_task[w.first_bucket[device[exchanges]]]
        count, links = run.tasks.queue_ends[1], step.devices + len(step.cluster.wires)
        kinds, used = np.array(run.tasks.kind[:count]), np.array(run.tasks.lane[:count])
        sends = np.flatnonzero((kinds == MOVE) & (used < links))
        sends = sends[np.argsort(r.turn[sends])]
        values, lanes = r.tie[sends] - ops, w.send_lane[sends]
        moved = np.zeros(len(step.cluster.wires), np.int64)
        np.add.at(moved, lanes, step.tables.copy_bytes[values])
        by_op = device, r.start[at], r.end[at], issued, issuing
        by_send = values, lanes, w.send_target[sends], r.start[sends], r.end[sends]
        by_place = tuple(r.peak.tolist()), tuple(moved.tolist())
        free = self._free_copies(device, place)
        return Simulated(step, tuple(map(int, place)), *by_op, *by_send, *by_place, makespan, free, bucket - first)

    def _free_copies(self, device: Ints, place: Sequence[int] | NDArray[np.integer]) -> int:
        """Count the copies that travel without a transfer: of each such value one to each device that reads it."""
        home, free = self.step.units.home, [each for each in self.step.values.values if each.free and each.readers]
        return sum(len({*device[[*each.readers]].tolist()} - {int(place[home[each.storage]])}) for each in free)


# -- scratch ----------------------------------------------------------------------------------------
# Room for a placement as tasks, and for their record, made once for all placements of a step.


def scratch(step: Step, micro_batches: int) -> Run:
    """Room for any placement of ``step``."""
    t, devices, ops = step.tables, step.devices, len(step.graph)
    lanes, gates, exchanges = 2 * devices + len(step.cluster.wires), devices * micro_batches, len(t.exchanges.ops)
    copies = sum(min(len(value.readers), devices - 1) for value in step.values.values)
    moves = copies * max((len(way) for ways in step.cluster.routes for way in ways), default=0)
    # Compiled code writes past the end of an array without a word, so these are bounds for every placement. Tasks: each
    # op and the release of its workspace, gates, every transfer of a copy and its release, buckets, releases.
    tasks = 2 * ops + gates + moves + copies + exchanges + len(t.home)
    # Each reader needs its value, and is needed by what overwrites that and by the release of a copy. Each op needs the
    # one before it in a strict order, a gate, and the last bucket; its gate and the release of its workspace need it.
    # Gates and buckets need those before them, a transfer what it sends.
    needs = 3 * len(t.readers) + len(t.makers) + len(t.users) + 5 * ops + gates + moves + exchanges
    room = Tasks(*map(_ints, (*[tasks] * 5, needs, tasks + 2, 2, 0)))
    by_op, by_lane = map(_ints, [ops] * 4), map(_ints, [devices] * 3)
    hosts = Hosts(devices if t.hosts else 0, t.launch, *by_op, *by_lane)
    record = _record(devices, lanes, tasks, needs)
    return Run(room, _draft(step, tasks), record, hosts, _shares(step, lanes))


def _draft(step: Step, tasks: int) -> Draft:
    devices, ops, beside = step.devices, len(step.graph), step.tables.exchanges
    arrivals, streams = len(step.values.values) * devices, devices * beside.streams
    sizes = (ops, ops, arrivals, tasks, tasks, *[len(beside.ops)] * 5, devices, devices, *[streams] * 3, devices)
    return Draft(*map(_ints, sizes))


def _record(devices: int, lanes: int, tasks: int, needs: int) -> Ready:
    # The tie of an op is its number, and the writer sets that of a transfer; only a transfer has bytes aside.
    given = _ints(tasks), np.arange(tasks), _ints(tasks) - 1
    sizes = (*[tasks] * 3, devices, devices, 3, tasks, needs, tasks + 1, tasks, *[lanes] * 3, tasks, tasks, lanes + 1)
    return Ready(*given, *map(_ints, sizes))


def _shares(step: Step, lanes: int) -> Shares:
    """Every device is slowed by the exchange beside it, whose lane is after those of transfers."""
    e, devices = step.tables.exchanges, step.devices
    beside, load = np.arange(lanes - devices, lanes), _ints(1 + int(e.channel.max(initial=0)))
    given = (devices if len(e.ops) else 0, beside, e.rate, e.sharers, e.channel, e.channel_at, e.flows)
    return Shares(*given, part=_ints(lanes), whole=_ints(lanes), load=load)


def _ints(count: int) -> Ints:
    return np.zeros(max(count, 1), np.int64)
