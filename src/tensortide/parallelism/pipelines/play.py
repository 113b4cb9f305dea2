"""A pipeline played: each rank runs its passes in order, each when its input has arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tensortide.parallelism.pipelines.runs import Run, RunKind
from tensortide.parallelism.pipelines.schedules import PipelineName, Task, order
from tensortide.play import MOVE, NOWHERE, RUN, Record, TaskList, played


class StageTime(NamedTuple):
    """Durations of a stage for one micro-batch, in ns: both passes, and receiving the input of each."""

    forward_ns: int
    backward_ns: int
    receive_ns: int = 0
    return_ns: int = 0


def play(
    schedule: PipelineName, stages: Sequence[StageTime], ranks: int, micro_batches: int, *, overlap: bool = False
) -> list[Run]:
    """Play ``micro_batches`` through a pipeline of ``stages``, dealt to ``ranks`` in turn (``timeline_of``: as a
    Timeline).

    A rank that receives an input computes nothing meanwhile, unless they ``overlap``: then the input is under way as
    soon as it has been computed, and a transfer is the part of it that its rank waits for. Nothing is received by a
    stage on the rank that computed its input.

    Raises DegreesError where the stages are no whole number for each rank, and as ``order`` does.

    Examples:
        >>> max(run.end_ns for run in play("1f1b", [StageTime(10, 20)] * 4, 4, 8)) == (8 + 4 - 1) * 30
        True
    """
    from tensortide.errors import DegreesError

    if ranks < 1 or not stages or len(stages) % ranks:
        raise DegreesError(f"stages / pipeline = {len(stages)}/{ranks} is no whole number")
    queues = [order(schedule, rank, ranks, micro_batches, len(stages) // ranks) for rank in range(ranks)]
    # A rank has two queues of as many tasks: what it receives, and its passes.
    each = len(queues[0])
    number = {task: (2 * rank + 1) * each + turn for rank, own in enumerate(queues) for turn, task in enumerate(own)}
    tasks = TaskList()
    for rank, own in enumerate(queues):
        tasks.new_queue()
        for before, task in zip([None, *own], own, strict=False):
            needs = _needs(task, len(stages))
            inputs = [] if needs is None else [number[needs]]
            free = [] if overlap or before is None else [number[before]]
            kind, lane = (MOVE, NOWHERE) if overlap else (RUN, rank)
            tasks.add(kind, lane, _received_ns(task, needs, stages, ranks), [*inputs, *free])
        tasks.new_queue()
        for task in own:
            stage = stages[task.stage]
            tasks.add(RUN, rank, stage.forward_ns if task.forward else stage.backward_ns, [number[task] - each])
    record = played(tasks.tasks, ranks)
    return [run for rank, own in enumerate(queues) for run in _runs(own, rank, number, record, len(stages))]


def _needs(task: Task, stages: int) -> Task | None:
    """The task whose result ``task`` takes: of the stage before it, or after it on the way back."""
    if task.forward:
        return task._replace(stage=task.stage - 1) if task.stage else None
    last = task.stage == stages - 1
    return task._replace(forward=True) if last else task._replace(stage=task.stage + 1)


def _received_ns(task: Task, needs: Task | None, stages: Sequence[StageTime], ranks: int) -> int:
    """The time of receiving the input of ``task``, if another rank computes it."""
    if needs is None or (needs.stage - task.stage) % ranks == 0:
        return 0
    return stages[task.stage].receive_ns if task.forward else stages[task.stage].return_ns


def _runs(own: Sequence[Task], rank: int, number: Mapping[Task, int], record: Record, stages: int) -> Iterator[Run]:
    """Yield the passes of a rank, and before each the part of the transfer that the rank waits for."""
    free = 0
    for task in own:
        start, end = record.start[number[task]], record.end[number[task]]
        assert end >= 0, "the schedule waits for itself"
        needs = _needs(task, stages)
        begun = free if needs is None else max(free, record.end[number[needs]])
        if start > begun:
            yield Run(RunKind.TRANSFER, task, rank, begun, start)
        yield Run(RunKind.FORWARD if task.forward else RunKind.BACKWARD, task, rank, start, end)
        free = end
