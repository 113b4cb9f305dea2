"""Pipelines that the player plays agree with their recurrence, to the nanosecond."""

from __future__ import annotations

import random

import pytest

from tensortide.parallelism.pipelines import SCHEDULES, StageTime, play
from tests.oracles import pipeline_recurrence


def assert_agrees(seed: int) -> None:
    """Play a drawn pipeline by both."""
    chance = random.Random(seed)
    own = SCHEDULES[chance.choice([*SCHEDULES])]
    ranks, chunks = (
        chance.randint(own.least_ranks, 7),
        own.least_chunks if own.most_chunks == 1 else chance.randint(2, 4),
    )
    micro_batches = chance.randint(1, 4) * ranks if own.has_chunks else chance.randint(1, 12)
    most = chance.choice((0, 3, 40))
    stages = [
        StageTime(chance.randint(0, 30), chance.randint(0, 60), chance.randint(0, most), chance.randint(0, most))
        for _ in range(ranks * chunks)
    ]
    overlap = chance.random() < 0.5
    found = play(own.name, stages, ranks, micro_batches, overlap=overlap)
    expected = pipeline_recurrence.play(own.name, stages, ranks, micro_batches, overlap=overlap)
    for rank in range(ranks):
        assert [run for run in found if run.lane == rank] == [run for run in expected if run.lane == rank]


def test_pipelines_agree() -> None:
    for seed in range(60):
        assert_agrees(seed)


@pytest.mark.slow
def test_two_thousand_pipelines_agree() -> None:
    for seed in range(1000, 3000):
        assert_agrees(seed)
