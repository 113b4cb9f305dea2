"""A pipeline played: each rank runs its tasks in order, each when its input has arrived."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tensortide.graph.model import Call, Graph, Meta, Op, Phase
from tensortide.parallelism.pipelines.schedules import PipelineName, Task, order
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Pass(enum.IntEnum):
    """Kinds of runs: two of computation, the input that a rank receives from another, and in measured pipelines the
    exchange with other replicas or stages, and the update."""

    FORWARD = 0
    BACKWARD = 1
    RECEIVE = 2
    EXCHANGE = 3
    UPDATE = 4


class StageTime(NamedTuple):
    """Durations of a stage for one micro-batch, in ns: both passes, and receiving the input of each.

    ``kept_bytes`` are activations that stay from the forward to the backward pass.
    """

    forward_ns: int
    backward_ns: int
    receive_ns: int = 0
    return_ns: int = 0
    kept_bytes: int = 0


class Run(NamedTuple):
    """An event: its kind, task, rank, start and end."""

    kind: Pass
    task: Task
    rank: int
    start_ns: int
    end_ns: int


class PipelineTimeline(Timeline):
    """A pipeline as it is played; lane r is rank r. Bytes are the activations on rank 0.

    ``tasks`` are those of the ops of ``recorded``, op by op.
    """

    def __init__(self, runs: Sequence[Run], ranks: int, kept: Sequence[int]) -> None:
        self.runs = tuple(sorted(runs, key=lambda run: (run.start_ns, run.rank)))
        self._kept = kept
        super().__init__(_graph(self.runs), "rank 0", self._events, tuple(f"rank {rank}" for rank in range(ranks)))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The task of each op."""
        return tuple(run.task for run in self.runs)

    def busy_ns(self, rank: int) -> int:
        """Time in which ``rank`` computes."""
        return self._busy_ns[rank]

    @functools.cached_property
    def _busy_ns(self) -> list[int]:
        found = [0] * len(self.lanes)
        for run in self.runs:
            if run.kind < Pass.RECEIVE:
                found[run.rank] += run.end_ns - run.start_ns
        return found

    def bubble(self) -> float:
        """Share of the time of all ranks in which they do not compute."""
        whole = self.makespan_ns * len(self.lanes)
        return 1 - sum(map(self.busy_ns, range(len(self.lanes)))) / whole if whole else 0.0

    def _events(self) -> Events:
        import numpy as np

        rows = [(run.rank, run.start_ns, run.end_ns) for run in self.runs]
        lane, start, end = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        index = np.arange(len(self.runs))
        return Events(0 * index + Kind.RUN, index, lane, start, end, self._resident(start))

    def _resident(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Activations on rank 0 during what starts at each of ``starts``: from the start of a forward pass to the end
        of its backward pass."""
        import numpy as np

        changes = [
            (run.start_ns, self._kept[run.task.stage])
            if run.task.forward
            else (run.end_ns, -self._kept[run.task.stage])
            for run in self.runs
            if run.rank == 0 and run.kind < Pass.RECEIVE
        ]
        at, change = np.array(sorted(changes), np.int64).T
        held = np.concatenate([[0], np.cumsum(change)])
        found: NDArray[np.int64] = held[np.searchsorted(at, starts, side="right")]
        return found


def play(
    schedule: PipelineName, stages: Sequence[StageTime], ranks: int, micro_batches: int, *, overlap: bool = False
) -> PipelineTimeline:
    """Play ``micro_batches`` through a pipeline of ``stages``, dealt to ``ranks`` in turn.

    A rank that receives an input computes nothing meanwhile, unless they ``overlap``: then the input is under way as
    soon as it has been computed. Nothing is received by a stage on the rank that computed its input.

    Raises DegreesError where the stages are no whole number for each rank, and as ``order`` does.

    Examples:
        >>> play("1f1b", [StageTime(10, 20)] * 4, 4, 8).makespan_ns == (8 + 4 - 1) * 30
        True
    """
    from tensortide.errors import DegreesError

    if not stages or len(stages) % ranks:
        raise DegreesError(f"stages / pipeline = {len(stages)}/{ranks} is no whole number")
    chunks = len(stages) // ranks
    queues = [order(schedule, rank, ranks, micro_batches, chunks) for rank in range(ranks)]
    ends: dict[Task, int] = {}
    runs: list[Run] = []
    free, place = [0] * ranks, [0] * ranks
    waiting = set(range(ranks))
    while waiting:
        moved = False
        for rank in sorted(waiting):
            while place[rank] < len(queues[rank]):
                task = queues[rank][place[rank]]
                needs = _needs(task, len(stages))
                if needs is not None and needs not in ends:
                    break
                free[rank] = _run(task, needs, rank, stages, ranks, free[rank], ends, runs, overlap=overlap)
                place[rank] += 1
                moved = True
            if place[rank] == len(queues[rank]):
                waiting.discard(rank)
        assert moved, f"the {schedule} schedule waits for itself"
    return PipelineTimeline(runs, ranks, [stage.kept_bytes for stage in stages])


def _needs(task: Task, stages: int) -> Task | None:
    """The task whose result ``task`` takes: of the stage before it, or after it on the way back."""
    if task.forward:
        return task._replace(stage=task.stage - 1) if task.stage else None
    last = task.stage == stages - 1
    return task._replace(forward=True) if last else task._replace(stage=task.stage + 1)


def _run(
    task: Task,
    needs: Task | None,
    rank: int,
    stages: Sequence[StageTime],
    ranks: int,
    free: int,
    ends: dict[Task, int],
    runs: list[Run],
    *,
    overlap: bool,
) -> int:
    """Receive the input of ``task`` and run it; return when its rank is free again."""
    own = stages[task.stage]
    ready = 0 if needs is None else ends[needs]
    start = max(free, ready)
    received = own.receive_ns if task.forward else own.return_ns
    if needs is not None and needs.stage % ranks != rank and received:
        began = ready if overlap else start
        start = max(free, began + received)
        runs.append(Run(Pass.RECEIVE, task, rank, began, began + received))
    ends[task] = start + (own.forward_ns if task.forward else own.backward_ns)
    runs.append(Run(Pass.FORWARD if task.forward else Pass.BACKWARD, task, rank, start, ends[task]))
    return ends[task]


_NAMES = {Pass.RECEIVE: "c10d.recv_.default", Pass.EXCHANGE: "c10d.allreduce_coalesced_.default"}
"""Ops by which ranks communicate, as in the Graphs of divided steps."""


def _graph(runs: Sequence[Run]) -> Graph:
    """The runs as ops without tensors, in the order of their starts."""
    calls = tuple(Call(_NAMES.get(kind, f"pipeline.{kind.name.lower()}")) for kind in Pass)
    phases = (Phase.FORWARD, Phase.BACKWARD)
    ops = tuple(
        Op(
            run.kind,
            (),
            (),
            phases[not run.task.forward] if run.kind is not Pass.UPDATE else Phase.OPTIMIZER,
            label=f"{run.kind.name.lower()} {run.task.micro_batch}",
        )
        for run in runs
    )
    return Graph(ops, calls, (), (), meta=Meta(workload="pipeline"))
