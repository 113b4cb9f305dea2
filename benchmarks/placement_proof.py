"""Bounds on the pipeline problems of `placement_quality.py` by branch and bound, and the optimum of alexnet/pipeline.

    python benchmarks/placement_proof.py [--write] [--smallest] [PROBLEM ...]

Layers get their device one after the other, in topological order; GPUs that hold nothing yet are alike, so one of them
stands for all. A branch ends where a bound on every placement in it reaches a limit: ten times the time of one batch on
a device, or on a channel, for what is decided; or three times the longest path of one batch through what is decided and
the fastest rest: four batches are in flight at most, so the fifth and the ninth begin after others have ended. An
output goes once to each device that reads it, a gradient to each parent, as the published simulator has it. "static
bound": the largest limit at which no placement is left. "optimum": of the placements left below the best time found,
each is simulated; "-" where they are too many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import harness
import numpy as np
from placement_quality import CASES

from tensortide.placements import NetProblem
from tensortide.placements.search import algorithm

AT_ONCE = 4_000
ROUNDING = 1e-9
PROVED = ("alexnet/pipeline",)
"""Problems small enough for each placement below the limit to be simulated."""


class Path(NamedTuple):
    """The longest path to the end of a layer, and from its gradient back, ms."""

    there: float
    back: float


class Left(Exception):
    """A placement is left below the limit."""


@dataclass
class Branches:
    """Branch and bound of ``problem`` below ``limit`` ms; with ``simulates`` what is left is scored, and lowers it."""

    problem: NetProblem
    limit: float
    simulates: bool
    count: int = 0
    simulated: int = 0
    leaves: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        t, self.limit = self.problem.tables, self.limit * (1 - ROUNDING)
        times = t.times.reshape(2, t.layers, t.devices)
        self.work, self.forward, self.backward = times.sum(axis=0).tolist(), times[0].tolist(), times[1].tolist()
        bounds = t.first[t.layers :].tolist()
        self.parents = [t.successors[bounds[k] : bounds[k + 1]].tolist() for k in range(t.layers)]
        least = times.sum(axis=0).min(axis=1).tolist()
        self.after = [0.0] * t.layers
        for layer in reversed(range(t.layers)):
            for parent in self.parents[layer]:
                self.after[parent] = max(self.after[parent], least[layer] + self.after[layer])
        hops = [int(t.route[i * t.devices + j]) if i != j else 0 for i in range(t.devices) for j in range(t.devices)]
        self.lane = [int(t.hop_lane[hop]) for hop in hops]
        rates = [float(t.hop_rate[hop]) for hop in hops]
        self.took = [[size / t.gigabyte / rate * 1000 / t.network for rate in rates] for size in t.nbytes.tolist()]

    def search(self) -> None:
        """Go through all branches. Raises Left for the first placement left, unless they are simulated."""
        t = self.problem.tables
        self._place([], [0.0] * t.devices, [0.0] * t.lanes, [])
        self._simulate()

    def _place(self, row: list[int], load: list[float], queue: list[float], paths: list[Path]) -> None:
        t, layer = self.problem.tables, len(row)
        self.count += 1
        if layer == t.layers:
            self._leaf(row)
            return
        for device in range(min(t.devices, max(row, default=0) + 2)):
            loads, queues = load.copy(), queue.copy()
            loads[device] += self.work[layer][device]
            path = self._path(row, device, queues, paths)
            whole = path.there + path.back + self.after[layer]
            if max(t.batches * max(*loads, *queues), -(-t.batches // t.in_flight) * whole) < self.limit:
                self._place([*row, device], loads, queues, [*paths, path])

    def _path(self, row: list[int], device: int, queues: list[float], paths: list[Path]) -> Path:
        """The path of the layer after ``row`` on ``device``; its transfers are added to ``queues``."""
        layer, devices = len(row), self.problem.tables.devices
        there = back = 0.0
        for parent in self.parents[layer]:
            source, first, second = row[parent], 0.0, 0.0
            if source != device:
                out, home = source * devices + device, device * devices + source
                first, second = self.took[parent][out], self.took[parent][home]
                if not any(row[k] == device and parent in self.parents[k] for k in range(layer)):
                    queues[self.lane[out]] += first
                queues[self.lane[home]] += second
            there, back = max(there, paths[parent].there + first), max(back, paths[parent].back + second)
        return Path(there + self.forward[layer][device], back + self.backward[layer][device])

    def _leaf(self, row: list[int]) -> None:
        if not self.simulates:
            raise Left
        self.leaves.append(row)
        if len(self.leaves) >= AT_ONCE:
            self._simulate()

    def _simulate(self) -> None:
        if self.leaves:
            scores, _ = self.problem.evaluate(np.array(self.leaves))
            self.limit = min(self.limit, float(scores.min()))
        self.simulated += len(self.leaves)
        self.leaves = []


def static_bound(problem: NetProblem, low: float, high: float) -> float:
    """The largest limit, to a thousandth, at which no placement is left."""
    while high - low > 1e-3 * low:
        middle = (low + high) / 2
        try:
            Branches(problem, middle, simulates=False).search()
            low = middle
        except Left:
            high = middle
    return low


def measure(run: harness.Run) -> None:
    table = run.table(
        {
            "problem": "{problem}",
            "found": "{found:.3f}",
            "bound without a search": "{bound:.1f}",
            "static bound": "{static:.1f}",
            "optimum": "{optimum}",
            "simulated": "{simulated:,}",
            "CPU s": "{cpu_s:.1f}",
        },
        key=("problem",),
    )
    folder = harness.reference() / "placement" / "inputs" / "exprimo"
    for name, case in run.cases({name: case for name, case in CASES.items() if case.batches > 1}).items():
        problem = case.problem(folder)
        budget = 500 if run.smallest else 20_000
        found = min(algorithm("best").search(problem, budget, seed).score_ms for seed in range(3))
        began = time.process_time()
        bound = problem.bounds.best_ms
        left = Branches(problem, found, simulates=True)
        if name in PROVED and not run.smallest:
            left.search()
        row: harness.Row = {
            "problem": name,
            "found": found,
            "bound": bound,
            "static": bound if run.smallest else static_bound(problem, bound, found),
            "optimum": f"{min(found, left.limit / (1 - ROUNDING)):.3f}" if left.count else "-",
            "simulated": left.simulated,
        }
        table.add({**row, "cpu_s": time.process_time() - began})


if __name__ == "__main__":
    harness.main(__doc__, measure)
