"""Placing captured steps on several devices: time to prepare, to evaluate a placement, and what the search finds.

    python benchmarks/place_graphs.py [--write] [--smallest] [CASE ...]

Steps of GPT-2 on A100s, each two joined by 300 GB/s (aim: 10,000 ops on 8 devices under 50 ms an evaluation, compiled).
Evaluations are the mean over contiguous and random placements; the search has 200 of them. Ops this small are bound by
the hosts that issue them, which leaves little to search: "hosts" counts these, the other cases leave them out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import harness
import numpy as np

import tensortide
from tensortide.placements.graphs import PlaceOptions, joined, placed, ready
from tensortide.placements.graphs.hosts import Launch
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.placements.search.best import Best
from tensortide.timing import device
from tensortide.timing.links import link

SIZES = {"batch": 2, "seq": 64, "hidden": 64, "heads": 4, "vocab": 500}
RANDOM = 9


@dataclass(frozen=True)
class Case:
    layers: int
    devices: int
    schedule: ScheduleName = "recorded"
    micro_batches: int = 1
    launch: Launch = "none"


CASES = {
    "one device": Case(12, 1),
    "four devices": Case(12, 4),
    "four, 1F1B": Case(12, 4, "1f1b", 8),
    "eight devices": Case(42, 8),
    "eight, 1F1B": Case(42, 8, "1f1b", 4),
    "eight devices, hosts": Case(42, 8, launch="eager"),
    "eight, 1F1B, hosts": Case(42, 8, "1f1b", 4, "eager"),
}
SMALLEST = {"two devices": Case(2, 2), "two, GPipe": Case(2, 2, "gpipe", 2)}


def measure(run: harness.Run) -> None:
    table = run.table(
        {
            "case": "{case}",
            "ops": "{ops:,}",
            "units": "{units}",
            "devices": "{devices}",
            "prepared, CPU s": "{ready_s:.2f}",
            "evaluation, CPU ms": "{evaluation_ms:.1f}",
            "contiguous / bound": "{equal:.2f}",
            "found / bound": "{found:.2f}",
        },
        key=("case",),
        title="placements",
    )
    for name, case in run.cases(SMALLEST if run.smallest else CASES).items():
        table.add({"case": name, **_measured(case)})


def _measured(case: Case) -> dict[str, float]:
    graph = tensortide.capture("gpt2", hyperparameters={**SIZES, "layers": case.layers})
    cluster = joined([device("A100-SXM-80GB")] * case.devices, link("300GB/s,2us"))
    options = PlaceOptions(schedule=case.schedule, micro_batches=case.micro_batches, launch=case.launch)
    begun = time.process_time()
    prepared = ready(graph, cluster, options)
    taken = time.process_time() - begun
    problem, units = prepared.problem, len(prepared.problem.names)
    chance = np.random.default_rng(0)
    rows = [[unit * case.devices // units for unit in range(units)]]
    rows += [chance.integers(0, case.devices, units).tolist() for _ in range(RANDOM)]
    places = np.array(rows, np.int64)
    problem.evaluate(places[:1])  # compiled by now
    begun = time.process_time()
    scores, _ = problem.evaluate(places)
    evaluation = (time.process_time() - begun) / len(places)
    best = Best().search(problem, 200)
    found = placed(prepared, best.placement, best)
    return {
        "ops": len(prepared.graph),
        "units": units,
        "devices": case.devices,
        "ready_s": taken,
        "evaluation_ms": 1000 * evaluation,
        "equal": float(scores[0]) / found.bounds.best_ms,
        "found": 1 + found.gap_share,
    }


if __name__ == "__main__":
    harness.main(__doc__, measure)
