"""Order of the forward and backward passes of each rank of a pipeline.

GPipe: Huang et al. (arXiv 1811.06965). 1F1B and interleaved chunks: Narayanan et al. (2104.04473), section 2.2.
"""

from __future__ import annotations

from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.parallelism.closed.configuration import Schedule


class Task(NamedTuple):
    """The forward or backward pass of a micro-batch through a chunk of a rank. ``stage`` counts chunks of all ranks in
    the order in which a micro-batch passes them."""

    forward: bool
    micro_batch: int
    stage: int


def order(schedule: Schedule, rank: int, ranks: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """The tasks of ``rank`` in their order. Chunk c of a rank is stage ``c * ranks + rank``.

    Raises DegreesError where the schedule is interleaved and the ranks do not divide the micro-batches, and for chunks
    that another schedule has not.
    """
    if chunks > 1 and schedule != "interleaved":
        raise DegreesError(f"{chunks} chunks go with the interleaved schedule, not with {schedule}")
    if schedule == "interleaved" and micro_batches % ranks:
        raise DegreesError(f"micro-batches / pipeline = {micro_batches}/{ranks} is no whole number (interleaved)")
    if schedule == "gpipe":
        every = range(micro_batches)
        return [Task(True, i, rank) for i in every] + [Task(False, i, rank) for i in every]
    forward, backward = (_passes(way, rank, ranks, micro_batches, chunks) for way in (True, False))
    total = micro_batches * chunks
    early = ranks - rank - 1
    if chunks > 1:
        early = 2 * early + (chunks - 1) * ranks
    early = min(early, total)
    steady = [task for pair in zip(forward[early:], backward, strict=False) for task in pair]
    return [*forward[:early], *steady, *backward[total - early :]]


def _passes(forward: bool, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Task]:
    """The passes of a rank in one direction: as many micro-batches as there are ranks go through a chunk, then through
    the next chunk."""
    found = []
    for k in range(micro_batches * chunks):
        turn, place = divmod(k, ranks * chunks)
        chunk, within = divmod(place, ranks)
        if chunks == 1:
            turn, within = 0, k
        found.append(Task(forward, turn * ranks + within, (chunk if forward else chunks - 1 - chunk) * ranks + rank))
    return [task._replace(stage=rank) for task in found] if chunks == 1 else found
