"""Digests of problems: equal for what is made twice, another wherever a score may be another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensortide.errors import PlacementError
from tensortide.executors import Where
from tensortide.placements import ACCURATE, Cluster, NetProblem, PartitionProblem, Settings, read_workload
from tensortide.placements.graphs import GraphProblem, MicroBatchSchedule, units_of
from tensortide.placements.graphs.tables import step_of
from tensortide.placements.search import algorithm
from tensortide.placements.search.groups import grouped
from tensortide.studies.placement.comparison import Task, compare, contenders
from tensortide.studies.placement.placed_net import NetSubject
from tests.placements.cases import cluster, net
from tests.placements.graphs.steps import line, pipeline, pipeline_ns
from tests.reference import COMMITTED

BASE = Settings(mode=ACCURATE, batches=4, pipeline_batches=2, include_backward=False)
MACHINE = cluster("malvik")
CHANGES: list[dict[str, Any]] = [
    {"pipeline_batches": 4},
    {"batches": 5},
    {"batch_size": 3},
    {"include_backward": True},
    {"ties": "fifo"},
    {"egress": "device"},
    {"priority": tuple(map(float, range(9)))},
    {"op_gap_us": 1.0},
    {"transfer_overhead_us": 1.0},
    {"comm_penalization": 0.5},
    {"device_memory_utilization": 0.5},
    {"memory_penalization_factor": 2.0},
    {"release": "backward"},
    {"mode": replace(ACCURATE, roofline=False)},
]


def problem(machine: Cluster = MACHINE, **settings: Any) -> NetProblem:
    return NetProblem(net("mnist"), machine, replace(BASE, **settings))


def with_channels(**more: Any) -> Cluster:
    """The cluster with other channels; ``latency_ns`` is that of their links."""
    latency = {"latency_ns": more.pop("latency_ns")} if "latency_ns" in more else {}
    channels = tuple(
        msgspec.structs.replace(channel, link=replace(channel.link, **latency), **more) for channel in MACHINE.channels
    )
    return msgspec.structs.replace(MACHINE, channels=channels)


def shared() -> Cluster:
    """The cluster with every link on channel 0."""
    links = tuple(msgspec.structs.replace(each, channel=0) for each in MACHINE.links)
    return msgspec.structs.replace(MACHINE, links=links)


def test_every_setting_and_every_channel_makes_another_problem() -> None:
    found = [problem().digest, *(problem(**change).digest for change in CHANGES)]
    found += [problem(one).digest for one in (shared(), with_channels(duplex=True), with_channels(latency_ns=9000))]
    found += [NetProblem(net("mnist"), MACHINE, BASE, where=[2, 1, 0]).digest]
    assert len(set(found)) == len(found) == len(CHANGES) + 5
    assert problem().digest == problem().digest


def test_groups_are_part_of_a_problem() -> None:
    found = [grouped(problem(), rule).digest for rule in ("none", "prefix:1", "prefix:2", "coarsen:3")]
    assert len(set(found)) == 4
    assert grouped(problem(batches=5), "prefix:1").digest not in found


def test_the_schedule_the_machine_and_pins_are_part_of_a_step() -> None:
    def of(machine: Cluster, schedule: MicroBatchSchedule | None = None, **pins: int) -> GraphProblem:
        graph = pipeline(3)
        step = step_of(units_of(graph), machine, [pipeline_ns(graph, 10, 20)] * 3)
        return GraphProblem(step, schedule, {int(key[1:]): device for key, device in pins.items()})

    machine = line(3)
    others = [
        of(line(3, duplex=False)),
        of(machine, MicroBatchSchedule("1f1b")),
        of(machine, MicroBatchSchedule("1f1b", in_flight=1)),
        of(machine, MicroBatchSchedule(priority="critical_path")),
        of(machine, u0=1),
        of(machine),
    ]
    assert len({one.digest for one in others}) == len(others)
    assert of(machine).digest == others[-1].digest


def test_the_memory_of_an_accelerator_is_part_of_a_workload() -> None:
    workload = read_workload(COMMITTED / "placement" / "partitions" / "bert24_training.json")
    less = msgspec.structs.replace(workload, bytes_per_accelerator=1.0)
    assert PartitionProblem(workload).digest == PartitionProblem(workload).digest != PartitionProblem(less).digest


@pytest.mark.parametrize("change", [{"pipeline_batches": 4}, {"ties": "fifo"}, {"egress": "device"}])
def test_neither_a_search_nor_a_comparison_goes_on_with_another_problem(change: dict[str, Any], tmp_path: Path) -> None:
    file, saved = tmp_path / "search.state", tmp_path / "runs.jsonl"
    algorithm("random").search(problem(), 20, checkpoint=file)
    with pytest.raises(PlacementError, match="another"):
        algorithm("random").search(problem(**change), 20, checkpoint=file)
    for settings in (BASE, replace(BASE, **change)):
        subject = NetSubject(net("mnist"), MACHINE, settings)
        task = Task("mnist", subject.problem, contenders(["random"])[0], 20, 0)
        compare([task], Where(workers=1, kind="threads"), saved=saved)
    assert len(saved.read_text().splitlines()) == 3  # a head, and a search of each
