"""Placements that searches find on the published problems, at 20,000 placements tried, beside published optimisers.

    python benchmarks/placement_quality.py [--write] [--smallest] [PROBLEM ...]

Batch 128, p .9, q .25, 1 ms per byte over memory, the published (compat) model. *normal*: two GPUs with their memory;
*limited*: four GPUs with little; *pipeline*: four GPUs with 32 GB, 10 batches, 4 in flight, the time of all ten.
Searches have their default options, and try every single device first. "best contiguous" is the best of all splits of
the order into stages on GPUs 1, 2, ..., each simulated. No placement is better than "bound". The original's column: the
best and the median of its best algorithm, 20,000 evaluations, 5 seeds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import harness
import msgspec
import numpy as np

from tensortide.placements import COMPAT, NetProblem, Settings, read_device_graph, read_net
from tensortide.placements.search import algorithm

BUDGET = 20_000
SEEDS = 5
ALGORITHMS = ("best", "random-hill", "annealing", "dual-annealing", "genetic", "map-elites", "contiguous", "m-etf")
AT_ONCE = 2_000


@dataclass(frozen=True)
class Case:
    net: str
    graph: str
    gpu_gb: float | None = None
    batches: int = 1
    in_flight: int = 1
    bar: str = ""
    original: str = ""

    def problem(self, folder: Path) -> NetProblem:
        cluster = read_device_graph(folder / "device_graphs" / f"{self.graph}.json")
        if self.gpu_gb is not None:
            nbytes = int(self.gpu_gb * 1e9)
            devices = [
                msgspec.structs.replace(device, capacity_bytes=nbytes) if device.row.kind == "gpu" else device
                for device in cluster.devices
            ]
            cluster = msgspec.structs.replace(cluster, devices=tuple(devices))
        settings = Settings(
            batch_size=128,
            batches=self.batches,
            pipeline_batches=self.in_flight,
            comp_penalization=0.9,
            comm_penalization=0.25,
            memory_penalization_factor=1.0,
            mode=COMPAT,
        )
        return NetProblem(read_net(folder / "nets" / f"{self.net}.json"), cluster, settings)


CASES = {
    "alexnet/normal": Case("alex_v2", "malvik", bar="43.407", original="43.4 (MAP-Elites)"),
    "alexnet/limited": Case(
        "alex_v2", "malvik-4gpu-reduced-alexnet", bar="56.3, every seed", original="56.2 (MAP-Elites)"
    ),
    "resnet50/normal": Case("resnet50", "malvik", bar="203.405, every seed", original="203.4 (MAP-Elites)"),
    "resnet50/limited": Case(
        "resnet50", "malvik-4gpu-reduced-resnet", bar="below 850", original="863.8, 899.1 (genetic)"
    ),
    "alexnet/pipeline": Case("alex_v2", "malvik-4gpu-reduced-alexnet", 32.0, 10, 4, "below contiguous"),
    "resnet50/pipeline": Case("resnet50", "malvik-4gpu-reduced-resnet", 32.0, 10, 4, "below contiguous"),
}


def measure(run: harness.Run) -> None:
    folder = harness.reference() / "placement" / "inputs" / "exprimo"
    table = run.table(
        {
            "problem": "{problem}",
            "algorithm": "{algorithm}",
            "best": "{best:.3f}",
            "median": "{median:.3f}",
            "worst": "{worst:.3f}",
            "bound": "{bound:.3f}",
            "simulated": "{simulated:,}",
            "CPU s": "{cpu_s:.2f}",
            "bar": "{bar}",
            "original": "{original}",
        },
        key=("problem", "algorithm"),
    )
    for name, case in run.cases(CASES).items():
        problem = case.problem(folder)
        for kind in ALGORITHMS[:1] if run.smallest else ALGORITHMS:
            table.add({"problem": name, **_searched(problem, kind, run), "bar": case.bar, "original": case.original})
        if case.batches > 1 and not run.smallest:
            table.add({"problem": name, **_contiguous(problem), "bar": "", "original": ""})


def _searched(problem: NetProblem, kind: str, run: harness.Run) -> harness.Row:
    budget, seeds = (500, 1) if run.smallest else (BUDGET, SEEDS)
    found = [algorithm(kind).search(problem, budget, seed) for seed in range(seeds)]
    scores = [one.score_ms for one in found]
    return {
        "algorithm": kind,
        "best": min(scores),
        "median": statistics.median(scores),
        "worst": max(scores),
        "bound": problem.bounds.best_ms if kind == "best" else None,
        "simulated": round(statistics.median(one.evaluations for one in found)),
        "cpu_s": statistics.median(one.cpu_s for one in found),
        "scores": scores,
    }


def _contiguous(problem: NetProblem) -> harness.Row:
    """Simulate every split of the order into at most as many stages as there are GPUs."""
    began, genes, gpus = time.process_time(), len(problem.names), problem.devices - 1
    cuts = itertools.chain.from_iterable(itertools.combinations(range(1, genes), count) for count in range(gpus))
    best, count = float("inf"), 0
    for some in _batched([*cuts]):
        rows = np.array([np.searchsorted(np.array(ends), np.arange(genes), side="right") + 1 for ends in some])
        best, count = min(best, float(problem.evaluate(rows)[0].min())), count + len(rows)
    cpu_s = time.process_time() - began
    return {
        "algorithm": "best contiguous",
        "best": best,
        "median": best,
        "worst": best,
        "simulated": count,
        "cpu_s": cpu_s,
    }


def _batched(cuts: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    return [cuts[start : start + AT_ONCE] for start in range(0, len(cuts), AT_ONCE)]


if __name__ == "__main__":
    harness.main(__doc__, measure)
