"""Schedules of micro-batches: in which order a device runs its ops, and how many micro-batches it has in flight.

A device's *stages* are the stretches of consecutive units that it has, in the order of the units; of a pipeline with p
devices, each has one (GPipe, 1F1B) or as many as all others (interleaved). Weight updates are synchronous: the
optimizer runs once, after all micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tensortide.errors import PlanError
from tensortide.graph.model import Phase
from tensortide.placements.graphs.kernel.records import Order
from tensortide.placements.graphs.tables import Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.memory.lifetimes import Ints

ScheduleName: TypeAlias = Literal["recorded", "gpipe", "1f1b", "interleaved"]
Priority: TypeAlias = Literal["recorded", "critical_path"]


@dataclass(frozen=True)
class Schedule:
    """A schedule of ``micro_batches``; ``micro`` has for each op its micro-batch, or -1, and is empty for a single one.

    ``name``: ``recorded`` runs what is ready in recorded order; ``gpipe`` all forward passes first; ``1f1b`` a backward
    pass wherever one is ready, with as many micro-batches in flight as there are stages from the device on;
    ``interleaved`` the same over several stages per device, in the fixed order of Narayanan et al. (2021).
    ``priority``: of the ops that are ready, the earliest recorded, or that with the longest path to the step's end.
    ``in_flight``: a smaller limit of micro-batches in flight on every device.

    Raises PlanError for a name that there is not, ``async`` among them: weights have one version.
    """

    name: ScheduleName = "recorded"
    micro_batches: int = 1
    micro: tuple[int, ...] = ()
    priority: Priority = "recorded"
    in_flight: int | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(ScheduleName):
            known = ", ".join(get_args(ScheduleName))
            asynchronous = " Weights have one version: asynchronous pipelines are not supported."
            raise PlanError(f"no schedule is called {self.name!r}; they are {known}.{asynchronous}")
        if self.in_flight is not None and self.in_flight < 1:
            raise PlanError(f"{self.in_flight} micro-batches in flight: at least one is")
        if self.priority not in get_args(Priority):
            raise PlanError(f"ops are ordered by {', '.join(get_args(Priority))}, not {self.priority!r}")

    @property
    def follows_placement(self) -> bool:
        """Return whether the order depends on the placement."""
        return self.name in ("1f1b", "interleaved")


def order_of(step: Step, schedule: Schedule, place: Ints) -> Order:
    """The order of the ops of ``step`` under ``schedule``, for the placement ``place``.

    Raises PlanError if the placement is no pipeline that the schedule is for.
    """
    import numpy as np

    count = len(step.graph)
    micro = np.array(schedule.micro or (-1,) * count, np.int64)
    phases = np.array([op.phase is Phase.FORWARD for op in step.graph.ops], bool)
    several = schedule.micro_batches > 1
    forward = (phases & (micro >= 0) & several).astype(np.int64)
    limit = np.full(step.devices, schedule.micro_batches, np.int64)
    if schedule.name == "interleaved" and several:
        return _interleaved(step, schedule, micro, forward, place)
    if schedule.name == "1f1b" and several:
        stages = stages_of(step, place)
        first = {device: number for number, device in reversed(list(enumerate(dict.fromkeys(stages))))}
        for device, number in first.items():
            limit[device] = len(first) - number
    if schedule.in_flight is not None:
        limit = np.minimum(limit, schedule.in_flight)
    if schedule.name == "recorded":
        forward = 0 * forward
    rank = _ranks(step, schedule, micro)
    return _order(rank, micro, forward, int(schedule.name == "gpipe"), limit, schedule.micro_batches)


def _order(
    rank: Ints, micro: Ints, forward: Ints, first: int, limit: Ints, count: int, *, strict: bool = False
) -> Order:
    import numpy as np

    by_rank = np.empty_like(rank)
    by_rank[rank] = np.arange(len(rank))
    return Order(rank, by_rank, int(strict), micro, forward, first, limit, count)


def _ranks(step: Step, schedule: Schedule, micro: Ints) -> Ints:
    """The place of each op among those that are ready at a time."""
    import numpy as np

    count = len(step.graph)
    if schedule.priority == "recorded":
        return np.arange(count)
    tails = tails_ns(step)
    turn = np.where(micro < 0, schedule.micro_batches, micro)
    order = np.lexsort((np.arange(count), -tails, turn))
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    return rank


def tails_ns(step: Step) -> NDArray[np.int64]:
    """For each op the length of the longest path of ops from its start to the end, each on its fastest device."""
    import numpy as np

    least = step.ns.min(axis=1).tolist() if len(step.graph) else []
    tails = list(least)
    before = step.graph.index.dependencies
    for op in range(len(least) - 1, -1, -1):
        for earlier in before[op]:
            tails[earlier] = max(tails[earlier], least[earlier] + tails[op])
    return np.array(tails, np.int64)


def stages_of(step: Step, place: Ints) -> list[int]:
    """The devices of the stages of a placement: those of units with forward ops, without repetitions in a row."""
    units = dict.fromkeys(
        step.units.of_op[op] for op, record in enumerate(step.graph.ops) if record.phase is Phase.FORWARD
    )
    devices = [int(place[unit]) for unit in units]
    return [device for i, device in enumerate(devices) if not i or devices[i - 1] != device]


def strict_order(step: Step, sequences: list[list[int]]) -> Order:
    """The order in which each device runs exactly its sequence of ops."""
    import numpy as np

    rank = np.empty(len(step.graph), np.int64)
    rank[[op for ops in sequences for op in ops]] = np.arange(len(step.graph))
    nothing = np.full(len(rank), -1, np.int64)
    return _order(rank, nothing, 0 * rank, 0, np.ones(step.devices, np.int64), 1, strict=True)


def _interleaved(step: Step, schedule: Schedule, micro: Ints, forward: Ints, place: Ints) -> Order:
    """Every device alternates between forward and backward passes of its stages in a fixed order, after as many forward
    passes as keep the devices after it busy."""
    import numpy as np

    stages = stages_of(step, place)
    devices = list(dict.fromkeys(stages))
    width, chunks, count = len(devices), len(stages) // len(devices), schedule.micro_batches
    if stages != devices * chunks or count % width:
        raise PlanError(
            f"an interleaved schedule needs stages that go round the devices equally often, and a multiple of {width} "
            f"micro-batches: there are {count}, and the stages are on {', '.join(map(str, stages))}"
        )
    chunk = _chunk_of_unit(step, place)
    position = np.empty(len(micro), np.int64)
    for number, device in enumerate(devices):
        passes = _passes(number, width, chunks, count)
        where = {one: i for i, one in enumerate(passes)}
        for op in np.flatnonzero(place[step.tables.unit] == device).tolist():
            k = int(micro[op])
            key = (bool(forward[op]), chunk[step.units.of_op[op]], k)
            position[op] = len(passes) if k < 0 else where[key]
    order = np.lexsort((np.arange(len(micro)), position))
    rank = np.empty(len(micro), np.int64)
    rank[order] = np.arange(len(micro))
    limit = np.full(step.devices, count, np.int64)
    return _order(rank, micro, 0 * forward, 0, limit, count, strict=True)


def _chunk_of_unit(step: Step, place: Ints) -> list[int]:
    """For each unit the number of its stage among those of its device; units without forward ops have the last."""
    found = [-1] * len(step.units)
    seen: dict[int, int] = {}
    before = -1
    for op, record in enumerate(step.graph.ops):
        unit = step.units.of_op[op]
        if record.phase is Phase.FORWARD and found[unit] < 0:
            device = int(place[unit])
            if device != before:
                seen[device] = seen.get(device, -1) + 1
                before = device
            found[unit] = seen[device]
    return [seen.get(int(place[unit]), 0) if chunk < 0 else chunk for unit, chunk in enumerate(found)]


def _passes(number: int, width: int, chunks: int, count: int) -> list[tuple[bool, int, int]]:
    """The passes of a device as forward or backward, stage on the device and micro-batch, in order."""
    total = count * chunks

    def one(i: int, *, forward: bool) -> tuple[bool, int, int]:
        turn, rest = divmod(i, width * chunks)
        chunk, k = divmod(rest, width)
        return forward, chunk if forward else chunks - 1 - chunk, turn * width + k

    warm = min(total, 2 * (width - number - 1) + (chunks - 1) * width)
    passes = [one(i, forward=True) for i in range(warm)]
    for i in range(total - warm):
        passes += [one(warm + i, forward=True), one(i, forward=False)]
    return passes + [one(i, forward=False) for i in range(total - warm, total)]
