"""The predicted step as a Timeline: the pipeline played, and what follows it until the step has ended."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.pipelines import Run, RunKind, Task, lanes_of_ranks, timeline_of
from tensortide.timelines.timeline import Timeline

AfterPasses = Sequence[tuple[RunKind, float]]
"""Activities of a rank after its last pass, in this order, each with its nanoseconds."""
MOST_PASSES = 10_000
"""Passes that a Timeline has at most, unless one round of the pipeline has more; transfers, exchanges and updates are
not counted. A step of more passes is shown with fewer micro-batches."""


def with_shown_micro_batches(one: Configuration) -> Configuration:
    """Return ``one`` with the number of micro-batches that its Timeline shows: whole rounds of the pipeline."""
    rounds = max(1, MOST_PASSES // (2 * one.chunks * len(lanes_of_ranks(one)) * one.pipeline))
    micro_batches = min(one.micro_batches, rounds * one.pipeline)
    return replace(one, batch=micro_batches * one.data * one.micro_batch)


def step_timeline(
    one: Configuration,
    runs: Sequence[Run],
    own: Sequence[AfterPasses],
    common: AfterPasses,
    kept_bytes: Sequence[int] = (),
) -> Timeline:
    """Return the Timeline of a step: ``runs`` of the pipeline; when they have ended, the ``own`` activities of each
    rank; and when the slowest has done those, the ``common`` ones of all. The ranks of a stage do the same.

    What takes no time is left out, but for passes, which keep and release activations.
    """
    last = Task(False, one.micro_batches - 1, 0)
    played = max(run.end_ns for run in runs)
    slowest = max(sum(ns for _, ns in ends) for ends in own)
    every = list(runs)
    for rank, ends in enumerate(own):
        for began, parts in ((played, ends), (played + slowest, common)):
            edges = [began, *(began + end for end in itertools.accumulate(ns for _, ns in parts))]
            times = itertools.pairwise(map(round, edges))
            every += [Run(kind, last, rank, *each) for (kind, _), each in zip(parts, times, strict=True)]
    lanes = lanes_of_ranks(one)
    of_stage: list[list[Run]] = [[] for _ in range(one.pipeline)]
    for run in every:
        if run.end_ns > run.start_ns or run.kind < RunKind.TRANSFER:
            of_stage[run.lane].append(run)
    copies = [run._replace(lane=number) for number, lane in enumerate(lanes) for run in of_stage[lane.stage]]
    return timeline_of(copies, lanes, kept_bytes)
