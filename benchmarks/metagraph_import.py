"""CPU time of importing a TensorFlow 1 MetaGraph, and its growth with the graph.

    python benchmarks/metagraph_import.py [--write] [KIND ...]

Made-up training graphs of 13,000 nodes (aim: under 2 CPU s), twice and four times as many: *layers* (dense layers,
their gradients and updates), *unrolled* (one cell, step after step), *loops* (while loops, each with an array that
grows), *feeds* (many fed tensors). Each graph is imported in a process of its own, after a small one so that modules
are loaded; *growth* is the time per node against that of the smallest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import harness

if TYPE_CHECKING:
    from tests.importers.tf1.build import Graph

NODES = 13_000
TIMES = (1, 2, 4)
SMALLEST = 400
COLUMNS = {
    "graph": "{graph}",
    "nodes": "{nodes:,}",
    "ops of the step": "{ops:,}",
    "import, CPU s": "{seconds:.2f}",
    "growth": "{growth:.2f}",
}


def layers(graph: Graph, nodes: int) -> None:
    from tests.importers.tf1.build import FLOAT

    graph.feed("x", -1, 64)
    graph.node("rate", "Const", dtype=FLOAT)
    below, count = "x", nodes // 11
    for i in range(count):
        graph.variable(f"{i}/W", 64, 64)
        graph.variable(f"{i}/b", 64)
        graph.node(f"{i}/product", "MatMul", below, f"{i}/W")
        graph.node(f"{i}/sum", "BiasAdd", f"{i}/product", f"{i}/b")
        below = graph.node(f"{i}/y", "Relu", f"{i}/sum")
    above = graph.node("gradients/loss", "OnesLike", below)
    for i in reversed(range(count)):
        scope, source = f"gradients/{i}_grad", f"{i - 1}/y" if i else "x"
        graph.node(f"{scope}/relu", "ReluGrad", above, f"{i}/y")
        graph.node(f"{scope}/b", "BiasAddGrad", f"{scope}/relu")
        graph.node(f"{scope}/W", "MatMul", source, f"{scope}/relu", transpose_a=True)
        above = graph.node(f"{scope}/x", "MatMul", f"{scope}/relu", f"{i}/W", transpose_b=True)
        for name in "Wb":
            graph.train(
                graph.node(f"{i}/{name}/step", "ApplyGradientDescent", f"{i}/{name}", "rate", f"{scope}/{name}")
            )


def unrolled(graph: Graph, nodes: int) -> None:
    graph.feed("state", -1, 64)
    graph.variable("W", 128, 256)
    state = "state"
    graph.scalar("axis", 1)
    for i in range(nodes // 9):
        graph.feed(f"{i}/x", -1, 64)
        graph.node(f"{i}/both", "ConcatV2", f"{i}/x", state, "axis")
        graph.node(f"{i}/gates", "MatMul", f"{i}/both", "W")
        graph.node(f"{i}/split", "Split", "axis", f"{i}/gates", num_split=4)
        for k in range(2):
            graph.node(f"{i}/gate_{k}", "Sigmoid", f"{i}/split:{k}")
        graph.node(f"{i}/new", "Tanh", f"{i}/split:2")
        graph.node(f"{i}/kept", "Mul", f"{i}/gate_0", f"{i}/new")
        state = graph.node(f"{i}/state", "Mul", f"{i}/kept", f"{i}/gate_1")
    graph.train(state)


def loops(graph: Graph, nodes: int) -> None:
    from tests.importers.tf1.build import FLOAT, INT, counted_loop

    graph.feed("x", -1, -1, 64)
    graph.feed("state", -1, 64)
    graph.variable("W", 64, 64)
    graph.node("shape", "Shape", "x", out_type=INT)
    for i, at in enumerate((0, 1, 1)):
        graph.const(f"slice_{i}", at)
    graph.node("steps", "StridedSlice", "shape", "slice_0", "slice_1", "slice_2", shrink_axis_mask=1)
    state = "state"
    zero, one = graph.scalar("zero", 0), graph.scalar("one", 1)
    for i in range(nodes // 33):
        graph.node(f"{i}/array", "TensorArrayV3", zero, dtype=FLOAT, dynamic_size=True)

        def body(states: list[str], invariants: list[str], i: int = i) -> list[str]:
            product = graph.node(f"{i}/product", "MatMul", states[0], invariants[0])
            new = graph.node(f"{i}/new", "Tanh", product)
            counter = f"{i}/loop/Identity_0"
            return [
                new,
                graph.node(f"{i}/write", "TensorArrayWriteV3", invariants[1], counter, new, states[1], T=FLOAT),
            ]

        given = [state, f"{i}/array:1"]
        _, state, flow = counted_loop(graph, f"{i}/loop", "steps", given, body, invariants=["W", f"{i}/array"])
        graph.node(f"{i}/size", "TensorArraySizeV3", f"{i}/array", flow)
        graph.node(f"{i}/range", "Range", zero, f"{i}/size", one, Tidx=INT)
        graph.train(graph.node(f"{i}/y", "TensorArrayGatherV3", f"{i}/array", f"{i}/range", flow, dtype=FLOAT))


def feeds(graph: Graph, nodes: int) -> None:
    graph.variable("W", 64, 64)
    for i in range(nodes // 3):
        graph.feed(f"{i}/x", -1, 64)
        graph.node(f"{i}/product", "MatMul", f"{i}/x", "W")
        graph.train(graph.node(f"{i}/y", "Relu", f"{i}/product"))


KINDS: dict[str, Callable[[Graph, int], None]] = {
    "layers": layers, "unrolled": unrolled, "loops": loops, "feeds": feeds,
}  # fmt: skip


def imported(kind: str, nodes: int) -> harness.Row:
    """Import a graph of about so many nodes in this process."""
    from tensortide import open as opened
    from tests.importers.tf1.build import Graph

    seconds, count, ops = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for size in (SMALLEST, nodes):
            graph, path = Graph(), Path(folder) / f"{size}.meta"
            KINDS[kind](graph, size)
            path.write_bytes(graph.data())
            count = len(graph.meta.graph_def.node)
            began = time.process_time()
            ops = len(opened(path).graph.ops)
            seconds = time.process_time() - began
    return {"graph": kind, "nodes": count, "ops": ops, "seconds": seconds}


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("graph", "nodes"))
    for kind in run.cases({kind: kind for kind in KINDS}):
        first = None
        for times in (1,) if run.smallest else TIMES:
            row = run.child(imported, kind, SMALLEST if run.smallest else NODES * times)
            each = row["seconds"] / row["nodes"]
            first = first or each
            table.add({**row, "growth": each / first})


if __name__ == "__main__":
    harness.main(__doc__, measure)
