"""CPU time of predicting a step: the durations of its ops, and the Timeline of device and host.

    python benchmarks/predict_time.py [--write] [--smallest]

Synthetic steps of 10,000 pointwise ops, of which all are distinct or one in ten (aim: under 0.5 CPU s). Each is
predicted seven times on an H100, of which the best counts; models are loaded before.
"""

from __future__ import annotations

import time

import harness

from tensortide.graph import Graph, Role
from tensortide.timelines.step import step_timeline
from tensortide.timing import device, estimate
from tests.graphs import Builder

OPS, ROUNDS = 10_000, 7
ON = device("H100-SXM-80GB")


def measure(run: harness.Run) -> None:
    table = run.table(
        {
            "ops": "{ops:,}",
            "distinct": "{distinct:,}",
            "durations, CPU s": "{durations_s:.2f}",
            "Timeline, CPU s": "{timeline_s:.2f}",
            "together": "{whole_s:.2f}",
        },
        key=("ops", "distinct"),
        title="steps predicted",
    )
    count = 100 if run.smallest else OPS
    _predict(_step(10, 10))
    for distinct in (count // 10, count):
        whole, durations = min(_predict(_step(count, distinct)) for _ in range(1 if run.smallest else ROUNDS))
        table.add({
            "ops": count, "distinct": distinct,
            "durations_s": durations, "timeline_s": whole - durations, "whole_s": whole,
        })  # fmt: skip


def _predict(graph: Graph) -> tuple[float, float]:
    """CPU seconds of both parts, and of the durations alone."""
    begun = time.process_time()
    durations = estimate(graph, ON)
    estimated = time.process_time()
    step_timeline(graph, durations, ON)
    return time.process_time() - begun, estimated - begun


def _step(count: int, distinct: int) -> Graph:
    builder = Builder()
    for index in range(count):
        nbytes = 4096 + 4 * (index % distinct)
        given = builder.storage(nbytes, Role.INPUT, device="cuda:0")
        builder.op([given], [builder.storage(nbytes, birth=index, device="cuda:0")], name="aten.relu.default")
    return builder.graph()


if __name__ == "__main__":
    harness.main(__doc__, measure)
