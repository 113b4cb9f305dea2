"""The report of a placed step: the batch, kernels of another kind of device, and pins that cost time."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import get_args

import pytest
import torch
from rich.console import Console
from torch import nn

import tensortide
from tensortide.graph import Graph
from tensortide.memory.lifetimes import Rule
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, joined, placed, ready
from tensortide.placements.graphs.hosts import Launch
from tensortide.placements.graphs.micro_batches import micro_batched
from tensortide.placements.graphs.placeable import placeable
from tensortide.reports.blocks import Facts, Note, Section
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.sections.placed_step import document, section
from tensortide.studies.placement.placed import StepPlacement
from tensortide.timelines import timeline
from tensortide.timelines.step import step_timeline
from tensortide.timing import estimate
from tensortide.timing.catalogue import device
from tensortide.timing.links import link
from tests.placements.graphs.steps import GPU, captured, cluster


@functools.cache
def found(pinned: str = "") -> PlacedStep:
    """A step on one device of two; the module ``pinned`` is bound to the other."""
    slow = cluster(2, link("1GB/s,1000us"))
    pins = {pinned: "gpu1"} if pinned else {}
    prepared = ready(captured("gpt2"), slow, PlaceOptions(Grouping(depth=2), pins=pins))
    return placed(prepared, [0] * len(prepared.problem.names))


def as_asked(found: PlacedStep, samples: int | None = None) -> StepPlacement:
    return StepPlacement("t", found, samples, search=found.search)


def notes(made: Section, kind: str) -> str:
    return " ".join(block.text for block in made.blocks if isinstance(block, Note) and block.kind == kind)


def test_the_batch_is_that_of_all_micro_batches() -> None:
    options = PlaceOptions(Grouping(depth=1), micro_batches=2, schedule="1f1b")
    prepared = ready(captured("gpt2"), cluster(2), options)
    made = document(as_asked(placed(prepared, [0] * len(prepared.problem.names)), samples=4))
    assert made.settings["batch"] == 8
    assert "batch" not in document(as_asked(found())).settings


def captured_line(data: int, micro_batches: int, samples: int | None) -> str:
    graph = perceptron(2)
    options = PlaceOptions(Grouping(depth=1), micro_batches=micro_batches, schedule="1f1b", data=data)
    prepared = ready(graph, cluster(2 * data), options)
    facts = section(placed(prepared, [0] * len(prepared.problem.names)), samples).blocks
    (fact,) = (row for block in facts if isinstance(block, Facts) for row in block.rows if row.key == "captured_for")
    return f"{fact.value}: {fact.remark}"


def test_the_batch_of_the_captured_step_stands_at_its_time() -> None:
    assert captured_line(1, 1, 2) == "cpu: batch 2"
    assert captured_line(1, 3, 2) == "cpu: batch 6 = 2 x 3 micro-batches"
    assert captured_line(2, 1, 2) == "cpu: batch 2 = 1 x 2 groups"
    assert captured_line(2, 3, 2) == "cpu: batch 6 = 1 x 3 micro-batches x 2 groups"
    assert captured_line(1, 1, None) == "cpu: "


def test_ops_of_another_kind_of_device_are_named_where_they_are_placed() -> None:
    said = notes(section(found()), "assumption")
    assert (
        "gpu0: times are of ops captured on cpu; the kernels of this device may be others, and their workspace" in said
    )
    assert "gpu1" not in said
    graph = captured("gpt2")
    same = joined([device("AMD EPYC (Zen5, fam 26) 1 vCPU")] * 2, link("25GB/s,5us"))
    prepared = ready(graph, same, PlaceOptions(Grouping(depth=1)))
    here = placed(prepared, [0] * len(prepared.problem.names))
    assert "captured on" not in notes(section(here), "assumption")


def test_the_verdict_rounds_halves_as_tables_do() -> None:
    """9 us on one device against 8: 1.125 times as fast, a half."""
    run = found()
    run = replace(run, simulated=replace(run.simulated, makespan_ns=8_000), reference_ns=9_000, reference_fits=True)
    assert "1.13 times as fast" in notes(section(run), "verdict")


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (10_030, "one device is as good (all on gpu0 takes 0.3 % longer)"),
        (10_000, "no placement found is faster"),
        (9_980, "one device is as good (all on gpu0 takes 0.2 % less)"),
        (10_060, "1.01 times as fast as one device"),
        (9_940, "0.99 times as fast as one device"),
    ],
)
def test_a_difference_that_two_digits_do_not_show_is_none(ns: int, said: str) -> None:
    run = found()
    run = replace(run, simulated=replace(run.simulated, makespan_ns=10_000), reference_ns=ns, reference_fits=True)
    verdict = notes(section(run), "verdict")
    assert verdict.endswith(f": {said}.")
    assert "1.00" not in verdict


@pytest.mark.parametrize(("launch", "micro_batches"), [("none", 2), ("eager", 1)])
def test_several_groups_are_compared_with_one_device_on_the_whole_batch(launch: Launch, micro_batches: int) -> None:
    """One device takes the times of the captured ops, one after the other, or what ``time`` predicts for them."""
    samples = 1 << 20  # so many that half of them take half the time
    graph = perceptron(samples)
    options = PlaceOptions(Grouping(depth=1), data=2, launch=launch, micro_batches=micro_batches)
    prepared = ready(graph, cluster(4), options)
    run = placed(prepared, [0] * len(prepared.problem.names))
    made = section(run, samples=samples)
    several = micro_batched(placeable(graph), micro_batches).graph
    durations = estimate(several, GPU)
    line = step_timeline(several, durations, GPU)
    kernels = sum(ns for ns, op in zip(durations.ns, several, strict=True) if not op.is_view)
    alone = line.end_ns() if launch == "eager" else kernels
    batch = samples * micro_batches
    assert made.fact("one_device_ns") == alone
    assert made.fact("one_device_fits")
    assert made.fact("samples_per_s") == pytest.approx(batch / run.step_ns * 1e9, rel=1e-3)
    assert made.fact("one_device_samples_per_s") == pytest.approx(batch / alone * 1e9, rel=1e-3)
    ratio = alone / run.step_ns
    told = f"{ratio:.2f} times as fast as one device with the whole batch"
    assert abs(ratio - 1) > 0.1
    assert told in notes(made, "verdict")
    assert f"{ratio:.2f} times those of gpu0 alone" in remark_of(made, "samples_per_s")


@functools.cache
def perceptron(samples: int) -> Graph:
    """A step without ops over lists, whose entries a placed step issues one by one."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4))
    return tensortide.capture(model, torch.randn(samples, 6), loss="sum", optimizer="sgd")


def remark_of(made: Section, key: str) -> str:
    (fact,) = (row for block in made.blocks if isinstance(block, Facts) for row in block.rows if row.key == key)
    return fact.remark


def test_one_device_without_the_memory_of_the_whole_batch_is_no_gain() -> None:
    graph = perceptron(4096)
    options = PlaceOptions(Grouping(depth=1), data=2)
    half = ready(graph, cluster(2), options)
    peak = max(placed(half, [0] * len(half.problem.names)).simulated.peak_bytes)
    prepared = ready(graph, cluster(2, capacity_bytes=peak), options)
    made = section(placed(prepared, [0] * len(prepared.problem.names)), samples=2)
    assert not made.fact("one_device_fits")
    assert "if it had the memory" in remark_of(made, "samples_per_s")
    assert "whole batch" not in notes(made, "verdict")


def test_a_single_group_is_not_compared_with_itself() -> None:
    with pytest.raises(KeyError, match="no fact of section 'placed_step' called 'one_device_ns'"):
        section(found(), samples=2).fact("one_device_ns")


@pytest.mark.parametrize("rule", get_args(Rule))
def test_the_rule_of_the_peaks_is_named_in_every_format(rule: Rule) -> None:
    """The peaks of the two rules differ, so each has its own name."""
    graph = captured("gpt2")
    prepared = ready(graph, cluster(1), PlaceOptions(Grouping(depth=1), rule=rule))
    run = placed(prepared, [0] * len(prepared.problem.names))
    made = document(as_asked(run))
    assert made["placed_step"].table("devices")["peak_bytes"][0] == timeline(graph, lifetimes=rule).peak_bytes
    words = {"last_use": "released after their last use", "eager": "released as in eager mode"}[rule]
    console = Console(width=200)
    with console.capture() as printed:
        console.print(made)
    for shown in (render_markdown(made), render_html(made, compress=False), printed.get()):
        assert words in shown
    assert json.loads(render_json(made))["settings"]["lifetimes"] == rule


def test_pins_that_cost_time_are_named() -> None:
    assert "Pinned" not in notes(section(found()), "warning")
    made = section(found("blocks.1"))
    assert "Pinned to gpu1: blocks.1" in notes(made, "warning")
    assert "were none pinned" in notes(made, "verdict")
