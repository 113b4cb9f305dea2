"""The recurrence of a pipeline: each rank runs its tasks in order, each when its input has arrived.

It goes from rank to rank, and runs the tasks of each until one waits for another rank: the oracle of pipelines that the
player of events plays.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.parallelism.pipelines import Run, RunKind, StageTime
from tensortide.parallelism.pipelines.schedules import PipelineName, Task, order


def play(
    schedule: PipelineName, stages: Sequence[StageTime], ranks: int, micro_batches: int, *, overlap: bool = False
) -> list[Run]:
    """Play ``micro_batches`` through a pipeline of ``stages``, dealt to ``ranks`` in turn."""
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
    return runs


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
    start = begun = max(free, ready)
    if needs is not None and needs.stage % ranks != rank:
        received = own.receive_ns if task.forward else own.return_ns
        start = max(free, ready + received) if overlap else begun + received
        if start > begun:
            runs.append(Run(RunKind.TRANSFER, task, rank, begun, start))
    ends[task] = start + (own.forward_ns if task.forward else own.backward_ns)
    runs.append(Run(RunKind.FORWARD if task.forward else RunKind.BACKWARD, task, rank, start, ends[task]))
    return ends[task]
