"""Placements as tasks: rules of the writer and of the player, each on a step by hand in which it alone decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tensortide.graph import Graph, Phase
from tensortide.placements.graphs import Grouping, units_of
from tensortide.placements.graphs.exchanges import ExchangeOp
from tensortide.placements.graphs.hosts import no_hosts
from tensortide.placements.graphs.kernel.records import Order, Run
from tensortide.placements.graphs.kernel.writer import write
from tensortide.placements.graphs.schedules import MicroBatchSchedule, strict_order
from tensortide.placements.graphs.simulate import Simulated, Simulator, scratch
from tensortide.placements.graphs.tables import Step, step_of
from tensortide.play.tasks import FREE, MOVE
from tensortide.timing.clusters import Cluster
from tests.graphs import Builder
from tests.placements.graphs.steps import cluster, line
from tests.placements.graphs.test_channels import BYTE_NS, beside, small
from tests.placements.graphs.test_player import DRAWN, Drawn

RECORDED = MicroBatchSchedule(priority="recorded")
EXCHANGE = ExchangeOp(3, "all_reduce", "uint8", 40)
TIMES = [10, 10, 5, 100, 1]
"""Times of the ops of ``small``, on each of two devices."""


def placement(step: Step, device: dict[int, int]) -> list[int]:
    """Every unit on device 0, but for those of the ops that ``device`` has."""
    found = [0] * len(step.units)
    for op, each in device.items():
        found[step.units.of_op[op]] = each
    return found


def played(graph: Graph, machine: Cluster, times: list[int], device: dict[int, int], **options: object) -> Simulated:
    """The step in recorded order."""
    step = step_of(units_of(graph, Grouping("closure")), machine, [times] * len(machine), **options)  # type: ignore[arg-type]
    return Simulator(step, RECORDED).run(placement(step, device))


def test_what_is_overwritten_was_read_before_by_all_at_home() -> None:
    """On one device x is made, read with what the other device makes late, and overwritten."""
    builder = Builder()
    x, y = builder.storage(8, birth=0), builder.storage(8, birth=1)
    builder.op([], [x])
    builder.op([], [y])
    builder.op([x, y], [builder.storage(8, birth=2)])
    builder.op([x], mutated=(0,))
    found = played(builder.graph(), cluster(2, BYTE_NS), [10, 100, 10, 10], {1: 1})
    assert found.start_ns.tolist() == [0, 0, 108, 118]


def test_of_ends_at_one_instant_that_of_the_earlier_op_comes_first() -> None:
    """The earlier op is on the later device; what it made goes first over the wire that both share."""
    builder = Builder()
    for op in range(2):
        builder.op([], [builder.storage(8, birth=op)])
    for op in range(2):
        builder.op([op], [builder.storage(8, birth=2 + op)])
    found = played(builder.graph(), line(2, duplex=False), [10, 10, 5, 5], {0: 1, 3: 1})
    assert (found.sent.tolist(), found.send_start_ns.tolist()) == ([0, 1], [10, 10 + 308])


def test_of_values_that_one_op_makes_the_first_is_sent_first() -> None:
    builder = Builder()
    made = [builder.storage(8, birth=0) for _ in range(3)]
    builder.op([], made)
    for op, value in enumerate(made):
        builder.op([value], [builder.storage(8, birth=1 + op)])
    found = played(builder.graph(), cluster(2, BYTE_NS), [10, 1, 1, 1], {1: 1, 2: 1, 3: 1})
    assert (found.sent.tolist(), found.send_start_ns.tolist()) == ([0, 1, 2], [10, 18, 26])


def test_a_device_that_waits_for_its_host_is_not_slowed() -> None:
    """The second op is issued at 50, beside the exchange, which slows it from then on."""
    hosts = no_hosts(2, 5)._replace(issue=((0, 50, 0, 0, 0),) * 2)
    found = played(small(), cluster(2, BYTE_NS), TIMES, {2: 1}, beside=beside([EXCHANGE], 2, ()), hosts=hosts)
    assert (found.start_ns.tolist()[:2], found.end_ns.tolist()[:2]) == ([0, 50], [10, 62])


def test_a_bucket_below_the_smallest_size_takes_the_time_of_that() -> None:
    made = replace(beside([EXCHANGE], 2, ()), sizes=np.array([100, 200]), size_ns=np.full((2, 1, 2), [50, 90]))
    found = played(small(), cluster(2, BYTE_NS), TIMES, {2: 1}, beside=made)
    assert (found.start_ns[3], found.end_ns[3]) == (10, 60)


def test_an_exchange_beside_others_keeps_no_strict_order() -> None:
    """The op that follows it in the order starts beside it."""
    step = step_of(
        units_of(small(), Grouping("closure")), cluster(2, BYTE_NS), [TIMES] * 2, beside=beside([EXCHANGE], 2, ())
    )
    found = Simulator(step, RECORDED).run(placement(step, {2: 1}), strict_order(step, [[0, 3, 1, 4], [2]]))
    assert found.start_ns.tolist()[:4] == [0, 10, 72, 10]


def test_an_exchange_beside_others_has_no_workspace_on_its_device() -> None:
    """Its buffer is counted apart: what it would have as an op is neither taken nor given back."""
    peaks = [
        played(
            small(), cluster(2, BYTE_NS), TIMES, {2: 1}, beside=beside([EXCHANGE], 2, ()), workspace=[0, 0, 0, own, 500]
        ).peak_bytes
        for own in (0, 77)
    ]
    assert peaks[0] == peaks[1]


def test_a_micro_batch_begins_when_all_before_the_limit_have_ended() -> None:
    """At most two are in flight. The first waits for the other device, and the second ends before it: the fourth has to
    wait for the first nevertheless."""
    builder, micro, saved = Builder(), list[int](), list[int]()
    for turn in range(4):
        saved.append(builder.storage(8, birth=turn))
        builder.op([], [saved[-1]])
        micro.append(turn)
    late = builder.storage(8, birth=4)
    builder.op([saved[0]], [late], phase=Phase.BACKWARD)
    for turn in range(4):
        own = [saved[turn], late] if turn == 0 else [saved[turn]]
        builder.op(own, [builder.storage(8, birth=5 + turn)], phase=Phase.BACKWARD)
    units = units_of(builder.graph(), Grouping("closure", free_backward=True))
    step = step_of(units, cluster(2, BYTE_NS), [[10] * 4 + [1000] + [10] * 4] * 2)
    schedule = MicroBatchSchedule("gpipe", 4, (*micro, 0, *micro), "recorded", 2)
    found = Simulator(step, schedule).run(placement(step, {4: 1}))
    first_ends = found.end_ns[5]
    assert found.end_ns[6] < first_ends <= min(found.start_ns[2], found.start_ns[3])


def written(step: Step, order: Order, place: list[int], micro_batches: int = 1) -> Run:
    """The tasks of ``place``, written by Python, which raises where an array is too short."""
    run = scratch(step, micro_batches)
    write(step.tables, order, run, np.array(place, np.int64), step.devices)
    return run


def assert_numbered(step: Step, run: Run) -> None:
    """What was numbered before it was written has that number, and there was room for all."""
    t, w, tasks, tie = step.tables, run.draft, run.tasks, run.record.tie
    ops, values, count = len(t.unit), len(t.writer), int(tasks.queue_ends[1])
    assert count <= len(tasks.kind)
    assert tasks.need_ends[count] <= len(tasks.need)
    assert max(tasks.need[: tasks.need_ends[count]], default=0) < count
    arrivals = w.arrival[: values * step.devices].reshape(values, step.devices)
    sent = 0
    for value, device in zip(*np.nonzero(arrivals >= ops), strict=True):
        task = arrivals[value, device]
        assert (tasks.kind[task], tasks.place[task], tie[task], w.send_target[task]) == (
            MOVE,
            device,
            ops + value,
            device,
        )
        assert (tasks.kind[task + 1], tasks.place[task + 1]) == (FREE, device)
        sent += 1
    assert sent == np.count_nonzero((np.array(tasks.kind[:count]) == MOVE) & (np.array(tasks.place[:count]) >= 0))
    for device in range(step.devices):
        bucket = w.first_bucket[device]
        while bucket >= 0:
            task = w.bucket_task[bucket]
            own = tasks.kind[task], tasks.lane[task], tie[task]
            assert own == (MOVE, step.devices + len(t.queue) + device, ops + values + bucket)
            bucket = w.bucket_after[bucket]


@pytest.mark.property
@settings(max_examples=15)
@given(DRAWN)
def test_tasks_have_the_numbers_that_they_were_given_and_there_is_room_for_all(drawn: Drawn) -> None:
    step, schedule, place = drawn
    simulator = Simulator(step, schedule)
    simulator.play(place)
    found = written(step, simulator._rules.critical, place, schedule.micro_batches)
    assert_numbered(step, found)


def test_the_room_for_tasks_is_all_used() -> None:
    """Each copy goes to the far end of a line, every op has a workspace, and every storage is released."""
    builder = Builder()
    x = builder.storage(8, birth=0, death=3)
    builder.op([], [x])
    builder.op([x], [builder.storage(8, birth=1, death=3)])
    step = step_of(
        units_of(builder.graph(), Grouping("closure")), line(3), [[10] * 2] * 3, rule="eager", workspace=[5, 5]
    )
    run = written(step, Simulator(step, RECORDED)._rules.critical, placement(step, {1: 2}))
    assert run.tasks.queue_ends[1] == len(run.tasks.kind) - 3  # the gates that one micro-batch does not have


def test_there_is_room_for_three_needs_of_each_reader() -> None:
    """Many values are each read by all ops of another device, whose copies are released, and overwritten at home."""
    builder = Builder()
    made = [builder.storage(8, birth=0, death=6) for _ in range(40)]
    builder.op([], made)
    for _ in range(4):
        builder.op(made)
    builder.op(made, mutated=range(len(made)))
    step = step_of(units_of(builder.graph(), Grouping("closure")), cluster(2, BYTE_NS), [[10] * 6] * 2)
    run = written(step, strict_order(step, [[0, 5], [1, 2, 3, 4]]), placement(step, dict.fromkeys(range(1, 5), 1)))
    assert_numbered(step, run)
    used = run.tasks.need_ends[run.tasks.queue_ends[1]]
    assert len(run.tasks.need) - len(step.tables.readers) < used
