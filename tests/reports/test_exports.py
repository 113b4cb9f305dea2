"""Files for other tools hold what the report says."""

from __future__ import annotations

import csv
import io
import json
import pickle
from itertools import pairwise
from typing import Any

import pytest

from tensortide.graph.model import Graph
from tensortide.reports import report
from tensortide.reports.document import Document
from tensortide.reports.formats import FORMATS
from tensortide.reports.sheets import MODULE_COLUMNS, render_markdown, render_modules_csv, render_ops_csv
from tensortide.reports.snapshot import ALIGNMENT, FirstFit, render_snapshot, snapshot
from tensortide.reports.trace import render_trace
from tensortide.timelines import timeline
from tests.reports.graphs import alone, empty, tower

HOSTILE = "a`|*b_</script>\n# c"


def trace_events(document: Document) -> list[dict[str, Any]]:
    parsed = json.loads(render_trace(document))
    assert "not measured" in parsed["otherData"]["time_axis"]
    events: list[dict[str, Any]] = parsed["traceEvents"]
    return events


def test_the_trace_has_every_op_in_order(document: Document) -> None:
    events = trace_events(document)
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)
    ops = [event for event in events if "op" in event.get("args", {})]
    assert [event["args"]["op"] for event in ops] == list(range(document.overview.ops))
    assert ops[0]["args"]["source"] == "/home/someone/train.py:10"
    assert sum(event["args"]["flops"] for event in ops) == document.overview.total.flops


def test_slices_of_the_trace_nest(document: Document) -> None:
    for track in (1, 2):
        slices = [e for e in trace_events(document) if e["ph"] == "X" and e["tid"] == track]
        open_: list[int] = []
        for event in slices:
            start, end = event["ts"], event["ts"] + event["dur"]
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)


def test_counters_of_the_trace_are_the_timeline(graph: Graph, document: Document) -> None:
    resident = timeline(graph).resident.tolist()
    for name in ("memory (bytes)", "memory by role (bytes)"):
        steps = {e["ts"]: sum(e["args"].values()) for e in trace_events(document) if e["name"] == name}
        current, replayed = 0, []
        for op in range(len(resident)):
            current = steps.get(op, current)
            replayed.append(current)
        assert replayed == resident


def replay(record: dict[str, Any], ops: int) -> list[int]:
    """Most bytes allocated while each op runs, from the state at the end back to the start, as viewers do."""
    (trace,) = record["device_traces"]
    now = sum(block["requested_size"] for segment in record["segments"] for block in segment["blocks"])
    allocated = {"alloc": 1, "free_completed": -1, "free_requested": 0}
    start = now - sum(allocated[e["action"]] * e["size"] for e in trace)
    resident, now = [], start
    for op in range(ops):
        most = None
        for event in (e for e in trace if e["time_us"] == op):
            now += allocated[event["action"]] * event["size"]
            most = now if event["action"] == "alloc" else most
        resident.append(max(now, most or 0))
    return resident


def test_the_snapshot_replays_to_the_predicted_memory(graph: Graph, document: Document) -> None:
    assert replay(snapshot(document), len(graph)) == timeline(graph).resident.tolist()


def test_blocks_of_the_snapshot_never_overlap(document: Document) -> None:
    record = snapshot(document)
    live: dict[int, int] = {}
    for event in record["device_traces"][0]:
        if event["action"] == "alloc":
            assert all(event["addr"] + event["size"] <= a or a + n <= event["addr"] for a, n in live.items())
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    (segment,) = record["segments"]
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    for one, other in pairwise(segment["blocks"]):
        assert one["address"] + one["size"] == other["address"]


def test_the_viewers_of_pytorch_take_the_snapshot(document: Document) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    record = pickle.loads(render_snapshot(document))
    assert "total_allocated" in viz.segsum(record)
    assert "relu" not in viz.trace(record)
    assert len(viz.trace_plot(record)) > 1000
    assert viz.memory(record, format_flamegraph=lambda lines: lines)
    frames = [frame["name"] for event in record["device_traces"][0] for frame in event["frames"]]
    assert {"aten.mm.default", "step"} <= set(frames)


def test_first_fit_reuses_and_joins_gaps() -> None:
    heap = FirstFit()
    a, b, c = (heap.take(ALIGNMENT) for _ in range(3))
    heap.give_back(a, ALIGNMENT)
    heap.give_back(c, ALIGNMENT)
    heap.give_back(b, ALIGNMENT)
    assert heap.gaps == [(0, 3 * ALIGNMENT)]
    assert heap.take(2 * ALIGNMENT) == 0
    assert heap.end == 3 * ALIGNMENT


def test_csv_has_a_row_per_op_and_module(document: Document) -> None:
    ops = list(csv.DictReader(io.StringIO(render_ops_csv(document))))
    assert len(ops) == document.overview.ops
    assert sum(int(row["flops"]) for row in ops) == document.overview.total.flops
    modules = list(csv.reader(io.StringIO(render_modules_csv(document))))
    assert modules[0] == list(MODULE_COLUMNS)
    assert len(modules) == len(document.modules) + 1


def test_an_unknown_cost_is_an_empty_cell() -> None:
    (row,) = csv.DictReader(io.StringIO(render_ops_csv(report(alone()))))
    assert row["flops"] == ""


def test_markdown_has_the_totals_and_is_well_formed(document: Document) -> None:
    text = render_markdown(document)
    assert "152.0 KiB" in text
    for table in text.split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_names_cannot_break_markdown() -> None:
    text = render_markdown(report(tower(hostile=HOSTILE)))
    assert "\n# c" not in text
    for line in text.splitlines():
        if line.startswith("| ``"):
            assert line.replace("\\|", "").count("|") == 5


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_every_step(name: str) -> None:
    for graph in (tower(train=False), alone(), empty(), tower(1, hostile=HOSTILE)):
        assert FORMATS[name](report(graph))
