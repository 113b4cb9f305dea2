"""Cost and time of static rematerialization: proved optima of linear networks, and of recorded logs if FILES are given.

    python benchmarks/checkpointing.py [LOG.jsonl.gz ...]

Budgets of logs are parts of the peak without recomputation. Prints one Markdown table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tensortide.importers.dtrlog import read_recording
from tensortide.plans.checkpointing import StaticGraph, chain, cheapest, no_recompute, optimum, static_graph

CHAINS = {8: (8, 6, 4), 16: (14, 10, 7, 4), 32: (24, 14, 10), 64: (40, 22)}
RATIOS = (0.8, 0.5)
SECONDS = 60.0


def row(name: str, static: StaticGraph, budget: int) -> str:
    start, found = cheapest(static, budget), optimum(static, budget, SECONDS)
    base = static.base_ns
    cells = (
        name,
        f"{len(static):,}",
        f"{budget:,}",
        f"{start.overhead:.4f} ({start.strategy})" if start else "none",
        f"{found.plan.overhead:.4f}" if found.plan else "none",
        f"{found.bound_ns / base:.4f}",
        found.status,
        f"{found.time_s:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def main(files: list[str]) -> None:
    print("| step | nodes | budget B | best heuristic | best found | no less than | status | s |")
    print("|---|---:|---:|---|---:|---:|---|---:|")
    for length, budgets in CHAINS.items():
        for budget in budgets:
            print(row(f"chain of {length}", chain(length), budget), flush=True)
    for file in files:
        log = read_recording(Path(file))
        static = static_graph(log.graph, log.durations_ns)
        peak = no_recompute(static).peak_bytes
        for ratio in RATIOS:
            print(row(f"{Path(file).name} at {ratio}", static, int(peak * ratio)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
