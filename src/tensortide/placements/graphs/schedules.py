"""Schedules of micro-batches: in which order a device runs its ops, and how many micro-batches it has in flight.

A device's *stages* are the stretches of consecutive units that it has, in the order of the units; of a pipeline with p
devices, each has one, or as many as all others (a schedule of chunks). Weight updates are synchronous: the
optimizer runs once, after all micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tensortide.errors import PlanError
from tensortide.graph.model import Phase
from tensortide.parallelism.pipelines import SCHEDULES, PipelineName, PipelineSchedule, order
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.kernel.ordered import Rules
from tensortide.placements.graphs.kernel.records import Order
from tensortide.placements.graphs.tables import Step

ScheduleName: TypeAlias = Literal["recorded", PipelineName]
Priority: TypeAlias = Literal["auto", "recorded", "critical_path"]


@dataclass(frozen=True)
class MicroBatchSchedule:
    """A schedule of ``micro_batches``; ``micro`` has for each op its micro-batch, or -1, and is empty for a single one.

    ``name``: ``recorded`` runs what is ready in recorded order; the others are those of pipelines: of what is ready
    they run forward or backward passes first, or follow a fixed order (``PipelineSchedule.next_pass``).
    ``priority``: of the ops that are ready, the earliest recorded, or that with the longest path to the step's end.
    ``auto`` is the recorded order on a single device, and the critical path on several unless it is the one that
    exceeds the memory.
    ``in_flight``: a smaller limit of micro-batches in flight on every device.

    Raises PlanError for a name that there is not, ``async`` among them: weights have one version.
    """

    name: ScheduleName = "recorded"
    micro_batches: int = 1
    micro: tuple[int, ...] = ()
    priority: Priority = "auto"
    in_flight: int | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(ScheduleName):
            known = ", ".join(get_args(ScheduleName))
            asynchronous = " Weights have one version: asynchronous pipelines are not supported."
            raise PlanError(f"no schedule is called {self.name!r}; they are {known}.{asynchronous}")
        if self.in_flight is not None and self.in_flight < 1:
            raise PlanError(f"{self.in_flight} micro-batches in flight: at least one is")
        if self.in_flight is not None and (self.pipeline is None or self.pipeline.next_pass is None):
            limited = " or ".join(name for name, each in SCHEDULES.items() if each.next_pass is not None)
            raise PlanError(f"the schedule {self.name!r} has no limit of micro-batches in flight: use {limited}")
        if self.priority not in get_args(Priority):
            raise PlanError(f"ops are ordered by {', '.join(get_args(Priority))}, not {self.priority!r}")

    @property
    def pipeline(self) -> PipelineSchedule | None:
        """The schedule of the passes; None of the recorded order."""
        return None if self.name == "recorded" else SCHEDULES[self.name]

    @property
    def fixed(self) -> PipelineSchedule | None:
        """The schedule whose order of passes is kept exactly; None where what is ready decides."""
        own = self.pipeline
        return own if own is not None and own.next_pass is None else None

    def most_in_flight(self, stages: int) -> int:
        """Micro-batches in flight, at most, on a device with ``stages`` stages from its own on."""
        limit = self.micro_batches if self.in_flight is None else min(self.in_flight, self.micro_batches)
        if self.pipeline is None or self.fixed is not None:
            return limit
        return min(limit, int(self.pipeline.in_flight(0, stages, self.micro_batches, 1)))


class Ordering:
    """Orders of the ops of ``step`` under ``schedule``. All but the limits and fixed orders is derived once."""

    def __init__(self, step: Step, schedule: MicroBatchSchedule) -> None:
        self.step, self.schedule = step, schedule
        count = len(step.graph)
        self.micro = np.array(schedule.micro or (-1,) * count, np.int64)
        self.forward = np.zeros(count, np.bool_)
        if schedule.micro_batches > 1 and schedule.name != "recorded":
            phases = np.array([op.phase is Phase.FORWARD for op in step.graph.ops], bool)
            self.forward = phases & (self.micro >= 0)
        making = [op for op, record in enumerate(step.graph.ops) if record.phase is Phase.FORWARD and record.outputs]
        units = [step.units.of_op[op] for op in making]  # one that only reads hands nothing on: it is no stage
        self.forward_units = list(dict.fromkeys(units))
        self._forward_units = np.array(self.forward_units, np.int64)
        self.recorded = np.arange(count)
        by_path = schedule.priority != "recorded" and schedule.fixed is None
        self.critical = _by_longest_path(step, schedule, self.micro) if by_path else self.recorded

    def rules(self, capacity: NDArray[np.float64]) -> Rules:
        """The orders of all placements, but of a fixed order; ``capacity``: bytes of each device."""
        schedule, critical = self.schedule, self._order(self.critical)
        auto = schedule.priority == "auto" and self.critical is not self.recorded
        recorded = self._order(self.recorded)._replace(limit=critical.limit)
        in_flight = [schedule.most_in_flight(stages) for stages in range(1, len(self.forward_units) + 1)]
        return Rules(critical, recorded, int(auto), np.array(in_flight, np.int64), self._forward_units, capacity)

    def fixed(self, place: Ints) -> Order | None:
        """The fixed order of the schedule for ``place``; None where what is ready decides.

        Raises PlanError if the schedule cannot be followed with it.
        """
        own = self.schedule.fixed
        return None if own is None or self.schedule.micro_batches == 1 else self._fixed(own, place)

    def _order(self, rank: Ints) -> Order:
        """The order in which ready ops of the least ``rank`` come first, those of forward passes before all others or
        after them; limits are set for each placement."""
        own, count = self.schedule.pipeline, self.schedule.micro_batches
        first = own is not None and own.next_pass == "forward"
        by_rank = np.lexsort((rank, self.forward != first))
        micro: list[Ints] = [np.flatnonzero(self.micro == turn) for turn in range(count if self.forward.any() else 0)]
        ends = np.cumsum([0, *map(len, micro)])
        gated = np.where(self.forward, self.micro, -1)
        limit = np.full(self.step.devices, count, np.int64)
        return Order(_inverse(by_rank), by_rank, 0, gated, np.concatenate([self.recorded[:0], *micro]), ends, limit)

    def stages(self, place: Ints) -> list[int]:
        """The devices of the stages of a placement: those of units with forward ops, without repetitions in a row."""
        devices = place[self.forward_units].tolist() if self.forward_units else []
        return [device for i, device in enumerate(devices) if not i or devices[i - 1] != device]

    def _fixed(self, own: PipelineSchedule, place: Ints) -> Order:
        """Every device runs the passes of its stages in the order of the schedule."""
        stages, count = self.stages(place), self.schedule.micro_batches
        devices = list(dict.fromkeys(stages))
        width, chunks = len(devices), len(stages) // max(1, len(devices))
        where_text = f"the stages are on {', '.join(map(str, stages))}"
        if stages != devices * chunks:
            raise PlanError(f"{own} needs stages that go round the devices equally often: {where_text}")
        for wrong in own.order_faults(width, count, chunks):
            raise PlanError(f"{wrong}: {where_text}")
        chunk = self._chunks(place)
        position = np.full(len(self.micro), 2 * chunks * count, np.int64)  # what runs once comes last
        of_device = place[self.step.tables.unit]
        for number, device in enumerate(devices):
            tasks = order(own.name, number, width, count, chunks)
            where = {(task.forward, task.stage // width, task.micro_batch): i for i, task in enumerate(tasks)}
            for op in np.flatnonzero((of_device == device) & (self.micro >= 0)).tolist():
                unit = self.step.units.of_op[op]
                position[op] = where[bool(self.forward[op]), chunk[unit], int(self.micro[op])]
        return _strict(np.lexsort((np.arange(len(self.micro)), position)), self.step.devices)

    def _chunks(self, place: Ints) -> list[int]:
        """For each unit the number of its stage among those of its device; units without forward ops have the last."""
        found: dict[int, int] = {}
        seen: dict[int, int] = {}
        before = -1
        for unit in self.forward_units:
            device = int(place[unit])
            if device != before:
                seen[device] = seen.get(device, -1) + 1
                before = device
            found[unit] = seen[device]
        return [found.get(unit, seen.get(int(place[unit]), 0)) for unit in range(len(self.step.units))]


def _inverse(order: Ints) -> Ints:
    found = np.empty_like(order)
    found[order] = np.arange(len(order))
    return found


def _by_longest_path(step: Step, schedule: MicroBatchSchedule, micro: Ints) -> Ints:
    """The rank of each op by its path to the end, the longest first, within its micro-batch."""
    count, tails = len(step.graph), tails_ns(step)
    tails[_views_of_gradients(step)] = tails.max(initial=0)
    turn = np.where(micro < 0, schedule.micro_batches, micro)
    return _inverse(np.lexsort((np.arange(count), -tails, turn)))


def _views_of_gradients(step: Step) -> list[int]:
    """The ops without a time that exchanges beside the computation wait for: autograd makes these views as soon as it
    has a gradient."""
    free, before = step.ns.max(axis=1) == 0, step.graph.index.dependencies
    found: set[int] = set()
    waiting = step.tables.exchanges.ops.tolist()
    while waiting:
        new = {op for op in before[waiting.pop()] if free[op]} - found
        found |= new
        waiting += new
    return sorted(found)


def tails_ns(step: Step) -> NDArray[np.int64]:
    """For each op the length of the longest path of ops from its start to the end, each on its fastest device."""
    least = step.ns.min(axis=1).tolist() if len(step.graph) else []
    tails = list(least)
    before = step.graph.index.dependencies
    for op in range(len(least) - 1, -1, -1):
        for earlier in before[op]:
            tails[earlier] = max(tails[earlier], least[earlier] + tails[op])
    return np.array(tails, np.int64)


def strict_order(step: Step, sequences: list[list[int]]) -> Order:
    """The order in which each device runs exactly its sequence of ops."""
    return _strict(np.array([op for ops in sequences for op in ops], np.int64), step.devices)


def _strict(by_rank: Ints, devices: int) -> Order:
    """The order in which each device keeps to ``by_rank``."""
    none = np.zeros(0, np.int64)
    return Order(
        _inverse(by_rank),
        by_rank,
        1,
        np.full_like(by_rank, -1),
        none,
        np.zeros(1, np.int64),
        np.ones(devices, np.int64),
    )
