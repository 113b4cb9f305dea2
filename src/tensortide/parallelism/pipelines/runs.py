"""Runs of the ranks of a divided step, predicted or measured, as a Timeline."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tensortide.graph.model import Call, Graph, Meta, Op, Phase
from tensortide.parallelism.degrees import ParallelDegrees
from tensortide.parallelism.pipelines.schedules import Task
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

MOST_LANES = 16
"""Ranks that have a lane each; more share one for each stage."""


class RunKind(enum.IntEnum):
    """Kinds of runs: the two passes; a transfer between stages; exchanges of gradients and parameters among replicas,
    and among stages; the update; what else happens once per step; and the wait for stragglers."""

    FORWARD = 0
    BACKWARD = 1
    TRANSFER = 2
    EXCHANGE_REPLICAS = 3
    EXCHANGE_STAGES = 4
    UPDATE = 5
    ONCE_PER_STEP = 6
    STRAGGLERS = 7


class Run(NamedTuple):
    """One activity of a rank: its kind, task, lane, start and end. ``lane``: number of the rank, or of the lane that
    shows it. Activities that follow the passes of all micro-batches have the task of the last."""

    kind: RunKind
    task: Task
    lane: int
    start_ns: int
    end_ns: int


class RankLane(NamedTuple):
    """A lane of a divided step: its name, its stage, and the ranks that it stands for."""

    name: str
    stage: int
    ranks: range


class _Kind(NamedTuple):
    """An op that stands for runs of a kind, its label, and its phase (None: that of the task)."""

    op: str
    label: str
    phase: Phase | None = None


_KINDS = {
    RunKind.FORWARD: _Kind("pipeline.forward", "forward {}"),
    RunKind.BACKWARD: _Kind("pipeline.backward", "backward {}"),
    RunKind.TRANSFER: _Kind("c10d.recv_.default", "transfer {}"),
    RunKind.EXCHANGE_REPLICAS: _Kind("c10d.allreduce_coalesced_.default", "exchange among replicas"),
    RunKind.EXCHANGE_STAGES: _Kind("c10d.allreduce_.default", "exchange among stages", Phase.OPTIMIZER),
    RunKind.UPDATE: _Kind("pipeline.update", "update", Phase.OPTIMIZER),
    RunKind.ONCE_PER_STEP: _Kind("pipeline.rest", "other, once per step", Phase.OTHER),
    RunKind.STRAGGLERS: _Kind("pipeline.stragglers", "stragglers", Phase.OTHER),
}
"""A transfer has the name of its op in the Graphs of divided steps. An exchange has that of the all-reduce, whatever
collectives ZeRO has: it stands for all of them."""


def lanes_of_ranks(degrees: ParallelDegrees) -> list[RankLane]:
    """The lanes of a step of these degrees: one for each rank, or of more than ``MOST_LANES`` one for each stage.

    Examples:
        >>> [lane.name for lane in lanes_of_ranks(ParallelDegrees(data=2, pipeline=2))][2:]
        ['stage 2 of 2, rank 2', 'stage 2 of 2, rank 3']
        >>> [lane.name for lane in lanes_of_ranks(ParallelDegrees(data=64, pipeline=2))]
        ['stage 1 of 2, ranks 0 to 63', 'stage 2 of 2, ranks 64 to 127']
    """
    stages, inner = degrees.pipeline, degrees.devices // degrees.pipeline
    each = 1 if degrees.devices <= MOST_LANES else inner
    found = []
    for first in range(0, degrees.devices, each):
        name, stage = f"rank {first}" if each == 1 else f"ranks {first} to {first + each - 1}", first // inner
        name = f"stage {stage + 1} of {stages}, {name}" if stages > 1 else name
        found.append(RankLane(name, stage, range(first, first + each)))
    return found


def timeline_of(
    runs: Sequence[Run], lanes: Sequence[RankLane] | None = None, kept_bytes: Sequence[int] = ()
) -> Timeline:
    """The Timeline of ``runs``, shown on ``lanes`` (default: one for each rank of a pipeline alone). Its ops have no
    tensors.

    ``kept_bytes``: activations that stay from the forward to the backward pass of a micro-batch, for each stage. Bytes
    of the Timeline are those on the first lane.
    """
    lanes = lanes or lanes_of_ranks(ParallelDegrees(pipeline=1 + max(run.lane for run in runs)))
    ordered = sorted(runs, key=lambda run: (run.start_ns, run.lane))
    names = tuple(lane.name for lane in lanes)
    return Timeline(_graph(ordered, lanes[-1].stage + 1), names[0], lambda: _events(ordered, kept_bytes), names)


def spent_ns(line: Timeline) -> Ints:
    """Time of each lane (row) of a Timeline of ``timeline_of`` that each ``RunKind`` takes (column)."""
    import numpy as np

    events = line.events
    kinds = np.array([op.call for op in line.recorded.ops], np.int64)[events.index]
    found = np.zeros((len(line.lanes), len(RunKind)), np.int64)
    np.add.at(found, (events.lane, kinds), events.end_ns - events.start_ns)
    return found


def computing_ns(line: Timeline) -> list[int]:
    """Time of each lane of a Timeline of ``timeline_of`` in which it computes a forward or a backward pass."""
    found: list[int] = spent_ns(line)[:, : RunKind.TRANSFER].sum(axis=1).tolist()
    return found


def bubble(line: Timeline) -> float:
    """Share of the time of all lanes in which they do not compute."""
    whole = line.makespan_ns * len(line.lanes)
    return 1 - sum(computing_ns(line)) / whole if whole else 0.0


def _graph(runs: Sequence[Run], stages: int) -> Graph:
    """The runs as ops without tensors, whose calls are in the order of ``RunKind``."""
    chunks = max((run.task.stage for run in runs), default=0) >= stages
    ops = []
    for kind, task, *_ in runs:
        own = _KINDS[kind]
        label = own.label.format(task.micro_batch)
        if chunks and kind < RunKind.EXCHANGE_REPLICAS:
            label += f", chunk {task.stage // stages + 1}"
        phase = own.phase or (Phase.FORWARD if task.forward else Phase.BACKWARD)
        ops.append(Op(kind, (), (), phase, label=label))
    calls = tuple(Call(_KINDS[kind].op) for kind in RunKind)
    return Graph(tuple(ops), calls, (), (), meta=Meta(workload="pipeline"))


def _events(runs: Sequence[Run], kept_bytes: Sequence[int]) -> Events:
    import numpy as np

    rows = [(run.lane, run.start_ns, run.end_ns) for run in runs]
    lane, start, end = np.array(rows, np.int64).reshape(-1, 3).T
    index = np.arange(len(runs))
    resident = _resident(runs, start, kept_bytes) if kept_bytes else 0 * index
    return Events(0 * index + Kind.RUN, index, lane, start, end, resident)


def _resident(runs: Sequence[Run], starts: Ints, kept_bytes: Sequence[int]) -> Ints:
    """Activations on the first lane during what starts at each of ``starts``: from the start of a forward pass to the
    end of its backward pass."""
    import numpy as np

    changes = [
        (run.start_ns, kept_bytes[run.task.stage]) if run.task.forward else (run.end_ns, -kept_bytes[run.task.stage])
        for run in runs
        if run.lane == 0 and run.kind < RunKind.TRANSFER
    ]
    at, change = np.array(sorted(changes), np.int64).T
    held = np.concatenate([[0], np.cumsum(change)])
    found: Ints = held[np.searchsorted(at, starts, side="right")]
    return found
