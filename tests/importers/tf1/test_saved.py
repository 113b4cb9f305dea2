"""A graph that was read from a MetaGraph and saved: any later process prices its ops."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tensortide.cost import count
from tensortide.graph import Graph as Step
from tensortide.graph import save
from tensortide.importers.tf1.load import import_graph
from tests.cli.command import run
from tests.importers.tf1.build import Graph, counted_loop


def small(path: Path) -> Path:
    """``for _ in range(5): y = max(x @ W, 0)`` in a file."""
    graph = Graph()
    graph.feed("x", 8, 16)
    graph.variable("W", 16, 32)
    graph.scalar("steps", 5)
    graph.node("y", "MatMul", "x", "W")
    counted_loop(graph, "loop", "steps", ["y"], lambda states, _: [graph.node("z", "Relu", states[0])])
    graph.train("loop/Exit_1")
    path.write_bytes(graph.data())
    return path


@pytest.mark.slow
def test_a_fresh_process_counts_a_saved_graph(tmp_path: Path) -> None:
    graph = saved(tmp_path)
    command = [sys.executable, "-m", "tensortide", "count", str(tmp_path / "step.tide"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_counted(done.stdout, graph)


def test_a_saved_graph_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = saved(tmp_path)
    assert_counted(run(capsys, "count", tmp_path / "step.tide", "--json"), graph)


def saved(folder: Path) -> Step:
    """The small graph, also in a file ``step.tide``."""
    graph = import_graph(small(folder / "step.meta")).graph
    save(graph, folder / "step.tide")
    return graph


def assert_counted(shown: str, graph: Step) -> None:
    costs = json.loads(shown)["sections"]["costs"]
    assert "covers 100 % of ops" in costs["notes"][0]["text"]
    assert costs["facts"]["product_flops"] == 2 * 8 * 16 * 32
    assert costs["facts"]["flops"] == count(graph).total.flops > 2 * 8 * 16 * 32
