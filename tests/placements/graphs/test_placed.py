"""Placing captured models: the search, what the result says, and requests that cannot be met."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import nn

import tensortide
from tensortide.errors import NothingFits, PlanError, TensortideError
from tensortide.graph import Graph
from tensortide.placements.graphs import Grouping, PlaceOptions, follow, joined, place, placed, ready
from tensortide.placements.graphs.durations import op_times
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.placements.search.contiguous import splits
from tensortide.plans import Evict, Receive, Send
from tensortide.plans.lanes import check_lanes
from tensortide.plans.model import Step
from tensortide.timing import estimate
from tensortide.timing.catalogue import device
from tensortide.timing.links import link
from tests.placements.graphs.steps import BRIEF, FREE, GPU, captured, cluster, pipeline

FEW = 30
"""Placements that are tried."""


@pytest.mark.parametrize(("name", "devices"), [("gpt2", 1), ("resnet18_cifar", 2), ("gpt2", 4)])
def test_a_model_is_placed_no_slower_than_one_device(name: str, devices: int) -> None:
    found = place(captured(name), cluster(devices), by=BRIEF, budget=FEW)
    assert found.bounds.best_ms * 1e6 <= found.step_ns + 1
    assert found.step_ns <= found.reference_ns
    assert found.fits
    storages = found.simulated.step.tables
    at_home = np.bincount(np.array(found.simulated.place)[storages.home], weights=storages.nbytes)
    assert at_home.sum() == sum(found.ready.graph.index.devices.values())
    assert sum(found.link_bytes.values()) == sum(found.simulated.moved_bytes)
    assert all(0 <= one.idle_share < 1 and one.priced_share == 1 for one in found.devices)
    assert found.unknown_workspace == tuple(one.device for one in found.devices)
    assert len(found.timeline.lanes) == devices + devices * (devices - 1) + devices  # links, and hosts
    check_lanes(found.plan, found.ready.graph)
    assert follow(found.ready, found.plan).makespan_ns == found.step_ns


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_micro_batches_on_several_devices_beat_one(schedule: ScheduleName) -> None:
    options = PlaceOptions(schedule=schedule, micro_batches=4)
    found = place(captured("gpt2"), cluster(2), options, by=BRIEF, budget=FEW)
    assert found.step_ns < 0.8 * found.reference_ns


def test_a_search_is_repeated_by_its_seed_and_finds_the_best_of_few() -> None:
    prepared = ready(pipeline(3), cluster(2, FREE), PlaceOptions(Grouping("closure")))
    every = np.array(list(itertools.product(range(2), repeat=len(prepared.problem.names))))
    best = prepared.problem.evaluate(every)[0].min()
    one, other = (BRIEF.search(prepared.problem, 400, seed=1) for _ in range(2))
    assert one.placement == other.placement
    assert one.proved
    assert one.score_ms == prepared.problem.evaluate(np.array(one.placement))[0][0] == best


def test_contiguous_placements_stay_within_the_memory() -> None:
    prepared = ready(captured("gpt2"), cluster(3))
    assert list(splits(prepared.problem, np.arange(3)))
    memory = int(prepared.problem.memory.sum())
    tight = ready(captured("gpt2"), cluster(3, capacity_bytes=int(0.9 * memory))).problem
    for row in splits(tight, np.arange(3)):
        assert np.bincount(row, weights=tight.memory).max() <= 0.9 * memory


def test_a_model_too_large_for_one_device_is_spread() -> None:
    graph = captured("resnet18_cifar")
    alone = place(graph, cluster(1), by=BRIEF, budget=FEW).simulated.peak_bytes[0]
    found = place(graph, cluster(2, capacity_bytes=int(0.85 * alone)), by=BRIEF, budget=80)
    assert found.fits
    assert not found.reference_fits
    assert set(found.device_of.values()) == {"gpu0", "gpu1"}


def test_pins_are_kept() -> None:
    options = PlaceOptions(Grouping(depth=2), {"blocks.1": "gpu1", "tokens": "gpu0"})
    found = place(captured("gpt2"), cluster(2), options, by=BRIEF, budget=FEW)
    assert found.device_of["blocks.1"] == "gpu1"
    assert found.device_of["tokens"] == "gpu0"
    assert found.search is not None
    assert found.search.score_ms * 1e6 == pytest.approx(found.step_ns)


@pytest.mark.parametrize(
    ("machine", "options", "kind", "message"),
    [
        (
            cluster(2, capacity_bytes=100),
            PlaceOptions(),
            NothingFits,
            "needs .* bytes throughout, and gpu0 has 100; its .* share",
        ),
        (
            cluster(2, capacity_bytes=6_000),
            PlaceOptions(),
            NothingFits,
            "needs .* bytes throughout, and all devices .* have 12,000",
        ),
        (cluster(2), PlaceOptions(pins={"tokens": "tpu"}), PlanError, "pinned to 'tpu'; the devices are gpu0, gpu1"),
    ],
)
def test_requests_that_cannot_be_met_say_who_needs_how_much(
    machine: tensortide.placements.graphs.Cluster, options: PlaceOptions, kind: type[PlanError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        place(captured("gpt2"), machine, options)


def test_where_nothing_fits_the_least_over_use_is_the_result() -> None:
    prepared = ready(captured("gpt2"), cluster(2, capacity_bytes=16_000))
    found = place(captured("gpt2"), cluster(2, capacity_bytes=16_000), by=BRIEF, budget=100)
    assert not found.fits
    assert not found.proved
    every = [placed(prepared, [device] * len(prepared.problem.names)) for device in range(2)]
    assert 0 < sum(found.simulated.over_bytes) < min(sum(one.simulated.over_bytes) for one in every)


def trained(optimizer: Callable[..., torch.optim.Optimizer]) -> Graph:
    def workload() -> Callable[[], None]:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        chosen = optimizer(model.parameters())
        x = torch.randn(3, 8)

        def step() -> None:
            model(x).sum().backward()
            chosen.step()
            chosen.zero_grad()

        return step

    return tensortide.capture(workload, real=True)


def test_optimizers_differ_by_their_states_in_memory() -> None:
    parameters = 4 * (8 * 16 + 16 + 16 * 4 + 4)
    resident = []
    for optimizer in (
        lambda values: torch.optim.SGD(values, lr=0.1),
        lambda values: torch.optim.SGD(values, lr=0.1, momentum=0.9),
        torch.optim.Adam,
    ):
        prepared = ready(trained(optimizer), cluster(2))
        tables = prepared.problem.step.tables
        resident.append(int(tables.nbytes[(tables.early == 1) & ~prepared.problem.step.released].sum()))
    steps = 4 * 4  # Adam counts steps, in fp32, for each of four parameters
    assert resident[1] - resident[0] == parameters
    assert resident[2] - resident[0] == 2 * parameters + steps


def test_a_fused_optimizer_is_one_op_per_parameter() -> None:
    graph = trained(lambda values: torch.optim.AdamW(values, fused=True))
    found = ready(graph, cluster(2), PlaceOptions(Grouping(depth=1)))
    fused = [op for op in found.graph if op.name.startswith("aten._fused_adamw_")]
    assert len(fused) == 4
    assert all(found.problem.step.units.of_op[op.index] in (0, 1, 2) for op in fused)
    assert found.problem.names[:3] == ("0", "1", "2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "xx"}, "--lifetimes takes eager or last_use, not xx"),
        ({"launch": "xx"}, "--launch takes eager, graph or none, not xx"),
        ({"data": 0}, "--data takes a whole number from 1, not 0"),
        ({"bucket_bytes": -1}, "--bucket-bytes takes a whole number from 0, not -1"),
        ({"workspace": "zz"}, "True, False or the bytes of each op, not 'zz'"),
        ({"workspace": [-1]}, "the bytes of each op"),
    ],
)
def test_options_that_there_are_not_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TensortideError, match=message):
        PlaceOptions(**options)


def test_groups_and_a_workspace_that_there_are_not_are_refused() -> None:
    with pytest.raises(TensortideError, match="--by takes module or closure, not foo"):
        Grouping(by="foo")  # type: ignore[arg-type] # what the test is of
    with pytest.raises(TensortideError, match="--units takes a whole number from 1, not 0"):
        Grouping(most=0)
    with pytest.raises(TensortideError, match="workspace of 2 ops is given"):
        ready(pipeline(3), cluster(2), PlaceOptions(workspace=[1, 2]))


def test_known_times_replace_predicted_ones() -> None:
    graph = captured("gpt2")
    machine = joined([GPU, device("H100-SXM-80GB")], link("pcie4"))
    durations = estimate(graph, GPU)
    times = op_times(graph, machine, {"gpu1": durations})
    views = [view.is_view for view in graph]
    assert all(ns == 0 for ns, view in zip(times.ns[0], views, strict=True) if view)
    predicted = op_times(graph, machine)
    assert predicted.ns[0] != predicted.ns[1]
    assert predicted.ns[0] == times.ns[1]


def test_devices_of_one_name_have_their_own_times() -> None:
    slow = structs.replace(GPU, memory_gbytes_per_s=GPU.memory_gbytes_per_s / 100)
    graph, wire = captured("gpt2"), link("pcie4")
    together = op_times(graph, joined([GPU, slow], wire)).ns
    apart = [op_times(graph, joined([each], wire)).ns[0] for each in (GPU, slow)]
    assert [*together] == apart
    assert sum(together[0]) < sum(together[1])


def test_a_plan_that_divides_a_unit_is_refused() -> None:
    graph = pipeline(2)
    fine = ready(graph, cluster(2, FREE), PlaceOptions(Grouping("closure", free_backward=True)))
    divided = placed(fine, [0, 0, 1, 1])
    assert len(fine.problem.names) == 4
    whole = ready(graph, cluster(2, FREE), PlaceOptions(Grouping("closure")))
    with pytest.raises(PlanError, match=r"ops of unit .* on several devices"):
        follow(whole, divided.plan)
    with pytest.raises(PlanError, match="gpu0, gpu1, and the devices of the cluster gpu0, gpu1, gpu2"):
        follow(ready(graph, cluster(3, FREE)), divided.plan)


def edited(steps: tuple[Step, ...], how: str) -> tuple[Step, ...]:
    """The steps of a lane with its last send one step later, or again at the end, or what it sent evicted there."""
    at, sent = [(number, step) for number, step in enumerate(steps) if isinstance(step, Send)][-1]
    if how == "late":
        return (*steps[:at], steps[at + 1], sent, *steps[at + 2 :])
    return (*steps, sent if how == "twice" else Evict(sent.storage))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("late", r"lane 1 \(gpu1\), after op 2 \(test.backward.default\): the plan has Compute.*, and place .* Send"),
        ("twice", r"lane 0 \(gpu0\), after op 4 \(test.update_.default\): the plan has Receive.*, and place .* none"),
        ("evict", r"lane 1 \(gpu1\), after op 5 \(test.update_.default\): the plan has Evict.*, and place .* none"),
    ],
)
def test_a_plan_whose_moves_would_be_left_out_is_refused(how: str, message: str) -> None:
    prepared = ready(pipeline(2), cluster(2), PlaceOptions(Grouping("closure")))
    plan = placed(prepared, [0, 1]).plan
    other, sender = plan.lanes
    changed = structs.replace(sender, steps=edited(sender.steps, how))
    again = [Receive(step.storage, 1) for step in changed.steps[len(sender.steps) :] if isinstance(step, Send)]
    wrong = structs.replace(plan, lanes=(structs.replace(other, steps=(*other.steps, *again)), changed))
    check_lanes(wrong, prepared.graph)
    assert follow(prepared, plan).makespan_ns
    with pytest.raises(PlanError, match=message) as error:
        follow(prepared, wrong)
    assert "\n" not in str(error.value)


def test_the_tables_for_searches_fit_together() -> None:
    problem = ready(captured("gpt2"), cluster(3), PlaceOptions(launch="none")).problem
    genes, edges = len(problem.names), len(problem.edges)
    assert problem.work.shape == (genes, 3)
    assert problem.transfers.shape == (edges, 3, 3)
    assert problem.memory.shape == (genes,)
    assert (problem.edges[:, 0] < problem.edges[:, 1]).all()
    assert (problem.transfers.diagonal(axis1=1, axis2=2) == 0).all()
    assert problem.work.sum() / 3 == pytest.approx(problem.bounds.work_ms * 3)
    assert (problem.activations <= problem.memory).all()
    assert problem.batches == 1
    scores, over = problem.evaluate(np.zeros((2, genes), np.int64))
    assert scores[0] == scores[1] == pytest.approx(problem.work[:, 0].sum())
    assert not over.any()
