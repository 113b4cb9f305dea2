"""Ops in groups and one by one, as CSV and as a trace."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tensortide.graph.model import Graph
from tensortide.reports import report
from tensortide.reports.blocks import Document
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.trace import render_trace
from tensortide.reports.sections import Step, memory
from tensortide.reports.sections.ops import edges, of_step, schedule
from tensortide.timelines import timeline
from tensortide.timing import Durations
from tests.reports.graphs import alone


def test_groups_add_up(document: Document) -> None:
    groups, ops = document["ops"].table("groups"), document["ops"].table("ops")
    assert sum(groups["flops"]) == document["cost"].fact("flops")  # type: ignore[arg-type]
    assert sum(groups["runs"]) == len(ops) > len(groups)  # type: ignore[arg-type]
    assert groups["flops"] == tuple(sorted(groups["flops"], reverse=True))  # type: ignore[type-var]


def test_memory_of_ops_is_the_timeline(graph: Graph, document: Document) -> None:
    assert list(document["ops"].table("ops")["resident_bytes"]) == timeline(graph).resident.tolist()


def test_csv_has_a_row_per_op_and_module(document: Document) -> None:
    ops = list(csv.DictReader(io.StringIO(render_csv(document, "ops.ops"))))
    assert len(ops) == document["cost"].fact("ops")
    assert sum(int(row["flops"]) for row in ops) == document["cost"].fact("flops")
    modules = list(csv.DictReader(io.StringIO(render_csv(document, "modules.modules"))))
    assert len(modules) == len(document["modules"].table("modules"))
    assert {"path", "depth", "own_flops", "accessed_bytes", "retained_bytes", "peak_bytes"} <= set(modules[0])


def test_an_unknown_cost_is_an_empty_cell() -> None:
    (row,) = csv.DictReader(io.StringIO(render_csv(report(alone()), "ops.ops")))
    assert row["flops"] == ""


# -- traces -----------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["by op", "by time"])
def step(request: pytest.FixtureRequest, graph: Graph) -> Step:
    ns = tuple(1000 * (i + 1) for i in range(len(graph)))
    return Step(graph, Durations(ns, "made up", "measured") if request.param else None)


def traced(step: Step) -> list[dict[str, Any]]:
    sections = (of_step(step), memory.of_step(step), schedule(step))
    parsed = json.loads(render_trace(step.document(*sections)))
    assert ("not known" in parsed["otherData"].get("time_axis", "")) == (step.durations is None)
    events: list[dict[str, Any]] = parsed["traceEvents"]
    return events


def test_the_trace_has_every_op_in_order(step: Step) -> None:
    events = traced(step)
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)
    ops = [event for event in events if "op" in event.get("args", {})]
    assert [event["args"]["op"] for event in ops] == list(range(len(step.graph)))
    assert ops[0]["args"]["source"] == "train.py:10"
    assert ops[0]["args"]["file"] == "/home/someone/train.py"
    assert sum(event["args"]["flops"] for event in ops) == step.counted.total.flops


def test_slices_of_the_trace_nest(step: Step) -> None:
    for track in range(3):
        slices = [e for e in traced(step) if e["ph"] == "X" and e["tid"] == track]
        assert slices
        open_: list[float] = []
        for event in slices:
            start, end = event["ts"], event["ts"] + event["dur"]
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)


def test_counters_of_the_trace_are_the_timeline(step: Step) -> None:
    resident, (starts, unit) = timeline(step.graph).resident.tolist(), edges(step)
    for name in ("resident (bytes)", "resident by part (bytes)"):
        levels = {e["ts"]: sum(e["args"].values()) for e in traced(step) if e["name"] == name}
        current, replayed = 0, []
        for start in starts[:-1]:
            current = levels.get(start if unit == "op" else start / 1000, current)
            replayed.append(current)
        assert replayed == resident
