"""The table of pipeline schedules: all that the other modules know of one is its row here.

GPipe: Huang et al. (arXiv 1811.06965). 1F1B and interleaved chunks: Narayanan et al. (2104.04473), section 2.2.

To add a schedule: its name in ``PipelineName``, its row in ``SCHEDULES``, the function of its order, in this file. The
command line, the closed form, the replay, searches and placed steps read them here; ``tests/parallelism/
test_schedules.py`` holds each row against its order played, so the new row is tested as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tensortide.errors import DegreesError

PipelineName: TypeAlias = Literal["gpipe", "1f1b", "interleaved"]
"""Names of the schedules, for types and options."""
DEFAULT_SCHEDULE: PipelineName = "1f1b"


class Task(NamedTuple):
    """The forward or backward pass of a micro-batch through a chunk of a rank. ``stage`` counts chunks of all ranks in
    the order in which a micro-batch passes them."""

    forward: bool
    micro_batch: int
    stage: int


@dataclass(frozen=True, kw_only=True)
class PipelineSchedule:
    """A schedule: in which order each rank of a pipeline runs its passes, and what follows from it.

    Args:
        name: its name.
        order: the tasks of a rank of ``(rank, ranks, micro_batches, chunks)`` in their order.
        in_flight: the most micro-batches in flight on a rank of ``(rank, ranks, micro_batches, chunks)``; a chunk is
            as much of one as it is of the rank. Without chunks it depends on ``ranks - rank`` alone.
        least_chunks, most_chunks: stages that a rank may have (None: no limit).
        least_ranks: ranks that it needs.
        needs: the fault of ``(ranks, micro_batches)`` in words, empty if they go with it.
        alone: the schedule that takes its place where there are fewer ranks; None: itself.
        bubble: time that a rank is idle of ``(ranks, chunks)``, in times of a rank for one micro-batch, with equal
            stages and no transfers.
        next_pass: what a device of a placed step runs first of the passes that are ready, with no more in flight than
            ``in_flight``; None: passes in exactly this ``order``.
    """

    name: PipelineName
    order: Callable[[int, int, int, int], list[Task]]
    in_flight: Callable[[int, int, int, int], float]
    least_chunks: int = 1
    most_chunks: int | None = 1
    least_ranks: int = 1
    needs: Callable[[int, int], str] = lambda ranks, micro_batches: ""
    alone: PipelineName | None = None
    bubble: Callable[[int, int], float] = lambda ranks, chunks: (ranks - 1) / chunks
    next_pass: Literal["forward", "backward"] | None = None

    @property
    def has_chunks(self) -> bool:
        """True if a rank may have several stages."""
        return self.most_chunks != 1

    def chunk_faults(self, chunks: int) -> Iterator[str]:
        """Yield the reason why a rank cannot have so many chunks, in words."""
        if chunks < self.least_chunks:
            yield f"chunks is {chunks}: {self} has at least {self.least_chunks} chunks on each rank"
        yield from self._excess(chunks)

    def faults(self, ranks: int, micro_batches: int | None, chunks: int) -> Iterator[str]:
        """Yield each reason why a step cannot follow the schedule, in words; micro-batches may not be known yet."""
        yield from self.chunk_faults(chunks)
        if ranks < self.least_ranks:
            yield f"{self} needs a pipeline of at least {self.least_ranks} ranks"
        if micro_batches is not None and (wrong := self.needs(ranks, micro_batches)):
            yield wrong

    def order_faults(self, ranks: int, micro_batches: int, chunks: int) -> Iterator[str]:
        """Yield each reason why there is no order, in words: fewer ranks or chunks than are meant still have one."""
        yield from self._excess(chunks)
        if wrong := self.needs(ranks, micro_batches):
            yield wrong

    def _excess(self, chunks: int) -> Iterator[str]:
        if self.most_chunks is None or chunks <= self.most_chunks:
            return
        if self.has_chunks:
            yield f"chunks is {chunks}: {self} has at most {self.most_chunks} chunks on each rank"
        else:
            yield f"{chunks} chunks go with the {' or '.join(with_chunks())} schedule, not with {self.name}"

    def __str__(self) -> str:
        return f"a{'n' * (self.name[0] in 'aeiou')} {self.name} schedule"


def order(schedule: PipelineName, rank: int, ranks: int, micro_batches: int, chunks: int = 1) -> list[Task]:
    """The tasks of ``rank`` in their order. Chunk c of a rank is stage ``c * ranks + rank``.

    Raises DegreesError for what the schedule does not go with.
    """
    own = SCHEDULES[schedule]
    for wrong in own.order_faults(ranks, micro_batches, chunks):
        raise DegreesError(wrong)
    return own.order(rank, ranks, micro_batches, chunks)


def with_chunks() -> list[PipelineName]:
    """The schedules that have several chunks on a rank."""
    return [name for name, own in SCHEDULES.items() if own.has_chunks]


def _fill_and_drain(rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Task]:
    every = range(micro_batches)
    return [Task(True, i, rank) for i in every] + [Task(False, i, rank) for i in every]


def _alternating(rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Task]:
    """The tasks of a rank: as many forward passes as keep the ranks after it busy, then forward and backward passes in
    turn."""
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


def _alternating_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> float:
    """The early forward passes of ``_alternating`` and one more."""
    if chunks == 1:
        return min(ranks - rank, micro_batches)
    return min(micro_batches, (2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1) / chunks)


def _whole_rounds(ranks: int, micro_batches: int) -> str:
    uneven = micro_batches % ranks
    return f"micro-batches / pipeline = {micro_batches}/{ranks} is no whole number (interleaved)" if uneven else ""


_TABLE = (
    PipelineSchedule(
        name="gpipe",
        order=_fill_and_drain,
        in_flight=lambda rank, ranks, micro_batches, chunks: micro_batches,
        next_pass="forward",
    ),
    PipelineSchedule(name="1f1b", order=_alternating, in_flight=_alternating_in_flight, next_pass="backward"),
    PipelineSchedule(
        name="interleaved",
        order=_alternating,
        in_flight=_alternating_in_flight,
        least_chunks=2,
        most_chunks=None,
        least_ranks=2,
        needs=_whole_rounds,
        alone="1f1b",
    ),
)
SCHEDULES: dict[PipelineName, PipelineSchedule] = {row.name: row for row in _TABLE}
"""All schedules by their names."""
