"""The snapshot for pytorch.org/memory_viz replays to the predicted memory."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pytest

from tensortide.graph.model import Graph
from tensortide.reports.snapshot import ALIGNMENT, FirstFit, render_snapshot, snapshot
from tensortide.timelines import timeline
from tests.reports.graphs import alone, empty, tower


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


def test_the_snapshot_replays_to_the_predicted_memory(graph: Graph) -> None:
    assert replay(snapshot(graph), len(graph)) == timeline(graph).resident.tolist()


def test_blocks_of_the_snapshot_never_overlap(graph: Graph) -> None:
    record = snapshot(graph)
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


def test_the_viewers_of_pytorch_take_the_snapshot(graph: Graph) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    record = pickle.loads(render_snapshot(graph))
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


@pytest.mark.parametrize("graph", [tower(train=False), alone(), empty()], ids=["inference", "alone", "empty"])
def test_every_step_has_one(graph: Graph) -> None:
    assert render_snapshot(graph)
