"""Simulated placements per CPU second, beside the original simulator.

    python benchmarks/placement_speed.py [--write] [--smallest] [CASE ...]

The original's figures are recorded ones, of one core of another run (`eval_speed.json` of the reference data); plain
Python is the kernel in a process without Numba, on the same random placements, and its scores are compared. The last
table is a synthetic net on eight devices: one evaluation, and the tables that all of them share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import harness
import numpy as np

if "WITHOUT_NUMBA" in os.environ:
    sys.modules["numba"] = None  # type: ignore[assignment]  # before it is imported below

from tensortide.placements import COMPAT, Net, NetProblem, Settings, read_device_graph, read_net
from tensortide.placements.simulator.queues import EVENTS
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, Neighbour, as_cluster
from tensortide.timing.paleo.layers import Entry

FOUR = "malvik-4gpu-reduced-resnet"
"""Times do not depend on the memory of a device, and the original was timed on a server with the same ones."""
CASES = {
    f"{net}, {gpus} GPUs, {batches}/{flying}": (net, gpus, batches, flying)
    for net in ("mnist", "alex_v2", "resnet50")
    for gpus in (2, 4)
    for batches, flying in ((1, 1), (10, 4))
}
ROUNDS = 5
LEAST_S = 0.2
"""CPU seconds of each round."""


def measure(run: harness.Run) -> None:
    table = run.table(
        {
            "net, server, batches/in flight": "{case}",
            "original": "{original:,.0f}",
            "plain Python": "{plain:,.0f}",
            "times": "{plain_times:.0f}",
            "kernel": "{kernel:,.0f}",
            "times the original": "{kernel_times:,.0f}",
        },
        key=("case",),
        title="Random placements per CPU second",
    )
    for name, case in run.cases(CASES).items():
        table.add({"case": name, **speeds(run, *case)})
    large = run.table(
        {
            "layers": "{layers:,}",
            "tables, s": "{tables_s:.2f}",
            "kernel, ms": "{kernel_ms:.2f}",
            "plain Python, ms": "{plain_ms:.1f}",
            "events": "{events:,}",
        },
        key=("layers",),
        title="A synthetic net on eight devices",
    )
    for layers in (1_000,) if run.smallest else (1_000, 10_000):
        plain_ms = run.child(synthetic, layers, WITHOUT_NUMBA="1")["kernel_ms"]
        large.add({"layers": layers, **synthetic(layers), "plain_ms": plain_ms})


def speeds(run: harness.Run, net: str, gpus: int, batches: int, flying: int) -> dict[str, float]:
    case = net, gpus, batches, flying, 1 if run.smallest else ROUNDS
    (kernel, scores), (plain, same) = speed(*case), run.child(speed, *case, WITHOUT_NUMBA="1")
    assert scores == same
    original = recorded(harness.reference() / "placement", net, gpus, batches)
    return {
        "original": original,
        "kernel": kernel,
        "plain": plain,
        "kernel_times": kernel / original,
        "plain_times": plain / original,
    }


def speed(net: str, gpus: int, batches: int, flying: int, rounds: int) -> tuple[float, list[float]]:
    """Placements per CPU second, and the scores of some."""
    exprimo = harness.reference() / "placement" / "inputs" / "exprimo"
    cluster = read_device_graph(exprimo / "device_graphs" / f"{'malvik' if gpus == 2 else FOUR}.json")
    settings = Settings(
        batch_size=128,
        batches=batches,
        pipeline_batches=flying,
        comp_penalization=0.9,
        comm_penalization=0.25,
        mode=COMPAT,
    )
    problem = NetProblem(read_net(exprimo / "nets" / f"{net}.json"), cluster, settings)
    rows = np.random.default_rng(1).integers(0, len(cluster.devices), (100, len(problem.names)))
    scores: list[float] = problem.evaluate(rows)[0].tolist()
    count = many(problem, rows)
    (times,) = harness.paired(rounds, lambda: repeat(problem, rows, count))
    return count / float(np.median(times)), scores


def many(problem: NetProblem, rows: np.ndarray[Any, Any]) -> int:
    """Number of evaluations that take ``LEAST_S``."""
    per_s = len(rows) / max(harness.seconds(lambda: problem.evaluate(rows)), 1e-4)
    return max(10, int(per_s * LEAST_S))


def repeat(problem: NetProblem, rows: np.ndarray[Any, Any], count: int) -> None:
    problem.evaluate(rows[np.arange(count) % len(rows)])


def recorded(folder: Path, net: str, gpus: int, batches: int) -> float:
    """Evaluations per CPU second of the original, of random placements."""
    for row in json.loads((folder / "eval_speed.json").read_text("utf-8"))["results"]:
        server = 4 if row["graph"].startswith("4-GPU") else 2
        if (row["net"], server, row["batches"], row["kind"]) == (net, gpus, batches, "random"):
            return float(row["evals_per_cpu_s"])
    raise LookupError(f"{net}, {gpus} GPUs, {batches} batches")


def synthetic(layers: int) -> dict[str, float]:
    """Chains with joins: every third layer reads the one before and one further back."""
    entries = {"data": Entry(type="Input", tensor=(8, 64, 64, 32))}
    names = ["data"]
    for i in range(1, layers):
        further = (names[max(0, i - 8)],) if i % 3 == 0 and i > 8 else ()
        kind = "Elementwise" if further else "Dropout"
        entries[f"layer{i}"] = Entry(type=kind, parents=(names[-1], *further))
        names.append(f"layer{i}")
    neighbours = [tuple(Neighbour(j, i) for j in range(8) if j != i) for i in range(8)]
    rates = {"model": "GPU", "clock": 1000, "peak_gflops": 10_000, "memory": 80, "mem_bandwidth": 2000}
    devices = tuple(GraphDevice(**rates, neighbours=of) for of in neighbours)  # type: ignore[arg-type]
    cluster = as_cluster(DeviceGraph(tuple(GraphChannel(bandwidth=256) for _ in range(8)), devices), "eight")
    began = time.process_time()
    kernel = NetProblem(Net("synthetic", entries), cluster, Settings())
    tables_s = time.process_time() - began
    rows = np.random.default_rng(1).integers(0, 8, (20, layers))
    kernel.evaluate(rows)
    with kernel.state() as state:
        events = int(state.counts[EVENTS])
    return {
        "tables_s": tables_s,
        "kernel_ms": harness.seconds(lambda: kernel.evaluate(rows)) / len(rows) * 1e3,
        "events": events,
    }


harness.main(__doc__, measure)
