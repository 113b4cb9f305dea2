"""The closed form of a step's two lanes agrees with the player of events, to the nanosecond."""

from __future__ import annotations

import random

import pytest

from tensortide.play import RUN, TaskList, Tasks, played
from tensortide.timelines.step import HostModel, OpTimes, walk

DEVICE, HOST = 0, 1


def tasks_of(clocks: OpTimes, host: HostModel) -> Tasks:
    """The queue of the device, each op once it is issued, and that of the host, which waits for what it reads."""
    count, tasks = len(clocks.device), TaskList()
    tasks.new_queue()
    for op in range(count):
        tasks.add(RUN, DEVICE, clocks.device[op] + clocks.after[op], [count + op] if host.issue_ns else [])
    tasks.new_queue()
    for op in range(count if host.issue_ns else 0):
        tasks.add(RUN, HOST, clocks.host[op], [op - 1] if op and clocks.waits[op - 1] else [])
    return tasks.tasks


def assert_agrees(seed: int) -> None:
    """Play a drawn step by both."""
    chance = random.Random(seed)
    host, count = HostModel(chance.choice((0, 24_000))), chance.choice((0, 1, 3, 40))
    most, waits = chance.choice((0, 10_000, 90_000)), chance.choice((0.0, 0.1, 0.6))
    clocks = OpTimes(
        [chance.randint(0, 30_000) if host.issue_ns else 0 for _ in range(count)],
        [chance.randint(0, most) for _ in range(count)],
        [host.issue_ns > 0 and chance.random() < waits for _ in range(count)],
        [0 if host.issue_ns else chance.randint(0, 900) for _ in range(count)],
    )
    record = played(tasks_of(clocks, host), 2)
    issued, started, ended = walk(clocks, host)
    assert started.tolist() == list(record.start[:count])
    assert (ended - started).tolist() == list(clocks.device)
    assert not host.issue_ns or issued.tolist() == list(record.end[count:])


def test_steps_agree() -> None:
    for seed in range(100):
        assert_agrees(seed)


@pytest.mark.slow
def test_two_thousand_steps_agree() -> None:
    for seed in range(1000, 3000):
        assert_agrees(seed)
