"""Section ``placed_run``: losses, states and bytes of a placed run beside those of one process and of the Plan."""

from __future__ import annotations

import dataclasses

import pytest

import tensortide
from tensortide.placements.graphs import PlacedStep, PlaceOptions, placed, ready
from tensortide.reports.blocks import Note, Section
from tensortide.reports.pictures import Spans
from tensortide.reports.sections.placed_run import section
from tensortide.run.placed.groups import ExchangeSpan
from tensortide.run.placed.lane import Span, planned_bytes
from tensortide.run.placed.placed_run import AloneRun, LaneRun, MeasuredPlacement
from tensortide.run.placed.seeded import SeededWorkload
from tests.placements.graphs.steps import cluster
from tests.run.placed.divided_workloads import layers
from tests.run.placed.workloads import residual, with_shards


def halves() -> PlacedStep:
    prepared = ready(tensortide.capture(residual()), cluster(2))
    names = prepared.problem.names
    return placed(prepared, [number * 2 // len(names) for number in range(len(names))])


def measured(found: PlacedStep) -> MeasuredPlacement:
    """A run in which every step of a lane took a microsecond."""
    graph, plan = found.ready.graph, found.plan
    loss = next(number for number, held in enumerate(graph.storages) if held.name == "output")
    lanes = [
        LaneRun(
            [{loss: 0.5}] if rank else [{}],
            {rank: "aa"},
            [1000 * len(lane.steps)],
            0,
            [Span(step, 1000 * step, 1000 * (step + 1)) for step in range(len(lane.steps))],
            {other: nbytes for (source, other), nbytes in planned_bytes(graph, plan).items() if source == rank},
        )
        for rank, lane in enumerate(plan.lanes)
    ]
    workload = SeededWorkload("mlp", {}, 1)
    alone = AloneRun([[0.5]], {(0, 0): "aa", (0, 1): "aa"})
    return MeasuredPlacement(workload, found, lanes, alone)


def verdict(made: Section) -> Note:
    first = made.blocks[0]
    assert isinstance(first, Note)
    return first


def test_a_run_stands_beside_the_prediction() -> None:
    found = halves()
    made = section(measured(found))
    assert verdict(made).kind == "verdict"
    assert verdict(made).text == (
        "Losses of 1 step in 2 processes are bit-identical to those of one process. So are the 2 parameters, buffers "
        "and optimizer states that a step updates. Bytes sent are those of the Plan."
    )
    ranks, sent = made.table("ranks"), made.table("sent")
    assert ranks["sent_bytes"] == ranks["planned_bytes"]
    pairs = zip(sent["source"], sent["target"], sent["sent_bytes"], strict=True)
    assert {f"{a} > {b}": nbytes for a, b, nbytes in pairs} == {k: v for k, v in found.link_bytes.items() if v}
    assert ranks["predicted_share"] == pytest.approx([1 - one.idle_share for one in found.devices])
    picture = made.blocks[-1]
    assert isinstance(picture, Spans)
    assert [lane.label for lane in picture.lanes][:3] == ["gpu0", "gpu1", "gpu0 > gpu1"]


def test_what_differs_is_said_plainly() -> None:
    found = halves()
    ran = measured(found)
    other = section(dataclasses.replace(ran, alone=AloneRun([[0.5000001]], {(0, 0): "aa", (0, 1): "ab"})))
    assert verdict(other).kind == "failure"
    assert "they differ from step 1 on" in verdict(other).text
    assert "1 of 2 updated parameters, buffers and states differ after them:" in verdict(other).text
    assert other.table("losses")["same"] == ("no",)
    lanes = [dataclasses.replace(lane, sent_bytes={}) for lane in ran.lanes]
    assert "Bytes sent are not those of the Plan." in verdict(section(dataclasses.replace(ran, lanes=lanes))).text
    silent = [dataclasses.replace(lane, outputs=[{}]) for lane in ran.lanes]
    quiet = section(dataclasses.replace(ran, lanes=silent, alone=AloneRun([[]], ran.alone.state)))
    assert verdict(quiet).text.startswith("The step returns no loss. The 2 parameters, buffers and optimizer states")
    assert "bit-identical to those of one process. Bytes" in verdict(quiet).text


def test_losses_of_shards_are_said_to_be_equal_within_the_tolerance_or_not() -> None:
    found = with_shards(halves())
    ran = measured(found)
    same = verdict(section(ran))
    assert same.text.startswith("Losses of 1 step in 2 processes are bit-identical to those of one process.")
    alone = AloneRun([[0.500001]], {(0, 0): "aa", (0, 1): "ab"}, {1: 3e-7})
    near = verdict(section(dataclasses.replace(ran, alone=alone)))
    name = found.ready.graph.storages[1].name
    assert near.kind == "verdict"
    assert near.text == (
        "Losses of 1 step in 2 processes are those of one process within 1e-05: they differ by up to 2.0e-06, as "
        "partial results of shards are added in another order. 1 of 2 updated parameters, buffers and states differ "
        f"after them: {name} most, by 3.0e-07 of its norm. Bytes sent are those of the Plan."
    )
    off = verdict(section(dataclasses.replace(ran, alone=AloneRun([[0.51]], {(0, 0): "aa", (0, 1): "aa"}))))
    assert off.kind == "failure"
    assert "they differ by up to 2.0e-02, more than the 1e-05 of sums in another order" in off.text


def test_groups_have_what_they_average_beside_the_plan() -> None:
    prepared = ready(tensortide.capture(layers()), cluster(2), PlaceOptions(data=2))
    found = placed(prepared, [0] * len(prepared.problem.names))
    one, (own,) = measured(found), found.exchange_runs
    graph = found.ready.graph
    loss = next(number for number, held in enumerate(graph.storages) if held.name == "output")
    nbytes = sum(bucket.nbytes for bucket in own)
    lanes = [
        dataclasses.replace(
            one.lanes[0],
            outputs=[{loss: 0.5 + group}],
            state={0: "aa"},
            exchanges=[ExchangeSpan(bucket.ops, bucket.nbytes, 10**6, 2 * 10**6) for bucket in own],
            exchanged_bytes={1 - group: nbytes},
        )
        for group in range(2)
    ]
    alone = AloneRun([[0.5, 1.5]], {(0, 0): "aa", (1, 0): "aa"})
    ran = dataclasses.replace(one, lanes=lanes, alone=alone)
    made = section(ran)
    assert verdict(made).text.startswith(
        "Losses of 1 step in 2 processes are bit-identical to those of one process that averages gradients over the "
        "groups in ascending order."
    )
    averages = made.table("averages")
    assert made.table("ranks")["predicted_share"] == (found.devices[0].busy_ns / found.step_ns,) * 2
    assert averages["device"] == ("gpu0", "gpu1")
    assert averages["gradients_bytes"] == averages["planned_bytes"] == averages["sent_bytes"] == (nbytes, nbytes)
    assert made.table("losses")["loss"] == (1.0,)
    assert averages["predicted_ns"] == tuple(one.exposed_ns for one in found.averages) * 2
    lost = [dataclasses.replace(lanes[0], exchanged_bytes={}), lanes[1]]
    assert not dataclasses.replace(ran, lanes=lost).as_planned
