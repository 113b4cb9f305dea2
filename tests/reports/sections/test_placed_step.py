"""The report of a placed step: the batch, kernels of another kind of device, and pins that cost time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest
from rich.console import Console

from tensortide.memory.lifetimes import Rule
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, joined, placed, ready
from tensortide.reports.blocks import Facts, Note, Section
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.sections.placed_step import document, section
from tensortide.timelines import timeline
from tensortide.timing.catalogue import device
from tensortide.timing.machine import link
from tests.placements.graphs.steps import captured, cluster


def found(pins: dict[str, str] | None = None) -> PlacedStep:
    slow = cluster(2, link("1GB/s,1000us"))
    prepared = ready(captured("gpt2"), slow, PlaceOptions(Grouping(depth=2), pins=pins or {}))
    return placed(prepared, [0] * len(prepared.problem.names))


def notes(made: Section, kind: str) -> str:
    return " ".join(block.text for block in made.blocks if isinstance(block, Note) and block.kind == kind)


def test_the_batch_is_that_of_all_micro_batches() -> None:
    options = PlaceOptions(Grouping(depth=1), micro_batches=2, schedule="1f1b")
    prepared = ready(captured("gpt2"), cluster(2), options)
    made = document(placed(prepared, [0] * len(prepared.problem.names)), title="t", samples=4)
    assert made.settings["batch"] == 8
    assert "batch" not in document(found(), title="t").settings


def captured_line(data: int, micro_batches: int, samples: int | None) -> str:
    options = PlaceOptions(Grouping(depth=1), micro_batches=micro_batches, schedule="1f1b", data=data)
    prepared = ready(captured("gpt2"), cluster(2 * data), options)
    facts = section(placed(prepared, [0] * len(prepared.problem.names)), samples).blocks
    (fact,) = (row for block in facts if isinstance(block, Facts) for row in block.rows if row.key == "captured")
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


@pytest.mark.parametrize("rule", get_args(Rule))
def test_the_rule_of_the_peaks_is_named_in_every_format(rule: Rule) -> None:
    """The peaks of the two rules differ, so each has its own name."""
    graph = captured("gpt2")
    prepared = ready(graph, cluster(1), PlaceOptions(Grouping(depth=1), rule=rule))
    run = placed(prepared, [0] * len(prepared.problem.names))
    made = document(run, title="t")
    assert made["placed_step"].table("devices")["peak"][0] == timeline(graph, lifetimes=rule).peak_bytes
    words = {"last_use": "released after their last use", "eager": "released as in eager mode"}[rule]
    console = Console(width=200)
    with console.capture() as printed:
        console.print(made)
    for shown in (render_markdown(made), render_html(made, compress=False), printed.get()):
        assert words in shown
    assert json.loads(render_json(made))["settings"]["lifetimes"] == rule


def test_pins_that_cost_time_are_named() -> None:
    assert "Pinned" not in notes(section(found()), "warning")
    made = section(found(pins={"blocks.1": "gpu1"}))
    assert "Pinned to gpu1: blocks.1" in notes(made, "warning")
    assert "were none pinned" in notes(made, "verdict")
