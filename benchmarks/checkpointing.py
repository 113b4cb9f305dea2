"""Static rematerialization: overhead against the proved optimum, and the solver's time.

    python benchmarks/checkpointing.py [--write] [LOG.jsonl.gz ...]

Linear networks, and recorded logs if files are given; their budgets are parts of the peak without recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import harness

from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans.checkpointing.optimum import cheapest, optimum
from tensortide.plans.checkpointing.segments import no_recompute
from tensortide.plans.checkpointing.static import StaticGraph, chain, static_graph

CHAINS = {8: (8, 6, 4), 16: (14, 10, 7, 4), 32: (24, 14, 10), 64: (40, 22)}
RATIOS = (0.8, 0.5)
SECONDS = 60.0
COLUMNS = {
    "step": "{step}",
    "nodes": "{nodes:,}",
    "budget B": "{budget:,}",
    "best heuristic": "{heuristic:.4f}",
    "strategy": "{strategy}",
    "best found": "{found:.4f}",
    "no less than": "{bound:.4f}",
    "status": "{status}",
    "s": "{seconds:.1f}",
}


def cases(files: list[str], smallest: bool) -> Iterator[tuple[str, StaticGraph, int]]:
    for length, budgets in CHAINS.items():
        for budget in budgets[:1] if smallest else budgets:
            yield f"chain of {length}", chain(length), budget
        if smallest:
            return
    for file in files:
        log = read_recording(Path(file))
        static = static_graph(log.graph, log.durations_ns)
        for ratio in RATIOS:
            yield f"{Path(file).name} at {ratio}", static, int(no_recompute(static).peak_bytes * ratio)


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("step", "budget"))
    for name, static, budget in cases(run.options.names, run.smallest):
        start, found = cheapest(static, budget), optimum(static, budget, SECONDS)
        table.add(
            {
                "step": name,
                "nodes": len(static),
                "budget": budget,
                "heuristic": start.overhead if start else None,
                "strategy": start.strategy if start else "none",
                "found": found.plan.overhead if found.plan else None,
                "bound": found.bound_ns / static.base_ns,
                "status": found.status,
                "seconds": found.time_s,
            }
        )


if __name__ == "__main__":
    harness.main(__doc__, measure)
