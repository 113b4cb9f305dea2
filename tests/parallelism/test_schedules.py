"""The table of schedules: every row is complete, and what it says of a schedule is what its order does when played."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from tensortide.errors import DegreesError
from tensortide.parallelism.closed import Configuration
from tensortide.parallelism.pipelines import (
    DEFAULT_SCHEDULE,
    SCHEDULES,
    PipelineName,
    PipelineSchedule,
    StageTime,
    computing_ns,
    order,
    play,
    timeline_of,
)
from tensortide.placements.graphs.schedules import ScheduleName

CASES = [
    (own, ranks, rounds * ranks, chunks)
    for own in SCHEDULES.values()
    for ranks, rounds, chunks in itertools.product((2, 3, 4), (1, 2, 3), (1, 2, 3))
    if not [*own.faults(ranks, rounds * ranks, chunks)]
]
every_case = pytest.mark.parametrize(
    ("own", "ranks", "micro_batches", "chunks"), CASES, ids=lambda each: getattr(each, "name", None)
)


def test_every_name_has_a_row_that_can_be_followed() -> None:
    assert tuple(SCHEDULES) == get_args(PipelineName)
    assert {own.name for own, *_ in CASES} == set(SCHEDULES)
    assert get_args(ScheduleName) == ("recorded", *SCHEDULES)
    assert DEFAULT_SCHEDULE in SCHEDULES
    for own in SCHEDULES.values():
        assert own.most_chunks is None or own.least_chunks <= own.most_chunks
        assert (own.alone is None) == (own.least_ranks == 1)
        if own.alone is not None:
            assert not [*SCHEDULES[own.alone].faults(own.least_ranks - 1, 1, 1)]


@every_case
def test_micro_batches_in_flight_are_those_of_the_order(
    own: PipelineSchedule, ranks: int, micro_batches: int, chunks: int
) -> None:
    for rank in range(ranks):
        flight = itertools.accumulate(
            1 if task.forward else -1 for task in order(own.name, rank, ranks, micro_batches, chunks)
        )
        assert max(flight) == pytest.approx(chunks * own.in_flight(rank, ranks, micro_batches, chunks))


@every_case
def test_the_bubble_is_that_of_the_order_played(
    own: PipelineSchedule, ranks: int, micro_batches: int, chunks: int
) -> None:
    line = timeline_of(play(own.name, [StageTime(20, 40)] * (ranks * chunks), ranks, micro_batches))
    stage = 60 * chunks
    idle = [line.makespan_ns - busy for busy in computing_ns(line)]
    assert idle == pytest.approx([stage * own.bubble(ranks, chunks)] * ranks)


@pytest.mark.parametrize("own", SCHEDULES.values(), ids=SCHEDULES)
def test_a_step_that_follows_what_is_ready_has_limits_that_depend_on_the_ranks_after_it(own: PipelineSchedule) -> None:
    if own.next_pass is None:
        assert {own.in_flight(1, 4, 8, own.least_chunks)} != {own.in_flight(0, 3, 8, own.least_chunks)}
        return
    for rank, ranks, micro_batches in itertools.product(range(3), range(3, 6), range(1, 9)):
        limit = own.in_flight(rank, ranks, micro_batches, 1)
        assert limit == own.in_flight(0, ranks - rank, micro_batches, 1)
        assert limit == int(limit)


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches", "chunks", "faults"),
    [
        ("1f1b", 2, 3, 1, []),
        ("1f1b", 2, 3, 2, ["2 chunks go with the interleaved schedule, not with 1f1b"]),
        ("gpipe", 1, 1, 3, ["3 chunks go with the interleaved schedule, not with gpipe"]),
        ("interleaved", 2, None, 2, []),
        ("interleaved", 2, 3, 2, ["micro-batches / pipeline = 3/2 is no whole number (interleaved)"]),
        (
            "interleaved",
            1,
            3,
            1,
            [
                "chunks is 1: an interleaved schedule has at least 2 chunks on each rank",
                "an interleaved schedule needs a pipeline of at least 2 ranks",
            ],
        ),
    ],
)
def test_faults_are_named(
    name: PipelineName, ranks: int, micro_batches: int | None, chunks: int, faults: list[str]
) -> None:
    assert [*SCHEDULES[name].faults(ranks, micro_batches, chunks)] == faults


def test_a_row_of_two_chunks_exactly_and_a_bubble_of_its_own_needs_no_other_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replay and a configuration ask the row alone."""
    made = PipelineSchedule(
        name="gpipe",
        order=SCHEDULES["interleaved"].order,
        in_flight=SCHEDULES["interleaved"].in_flight,
        least_chunks=2,
        most_chunks=2,
    )
    monkeypatch.setitem(SCHEDULES, "gpipe", made)
    assert play("gpipe", [StageTime(10, 20)] * 4, 2, 4) == play("interleaved", [StageTime(10, 20)] * 4, 2, 4)
    with pytest.raises(DegreesError, match="chunks is 3: a gpipe schedule has at most 2 chunks on each rank"):
        play("gpipe", [StageTime(10, 20)] * 6, 2, 4)
    assert Configuration(batch=4, pipeline=2, chunks=2, schedule="gpipe").chunks == 2
