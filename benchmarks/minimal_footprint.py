"""Minimal footprint: the smallest peak over all orders of a step's ops.

    python benchmarks/minimal_footprint.py [--write] [WORKLOAD ...]

Training steps and irregular graphs. Every order is replayed, and every proof but an exhausted search is checked again
from the graph. Seconds of CPU time, of the search alone, which uses one core. *Captured order* is under the same
lifetimes (``docs/memory.md``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import harness

from tensortide import capture, footprint
from tensortide.graph import Graph
from tensortide.plans.order.proof import Exhausted, verify
from tensortide.replays import replay
from tests.plans.dags import joined_chains, random_dag

COLUMNS = {
    "graph": "{graph}",
    "ops": "{ops:,}",
    "captured order B": "{captured:,}",
    "lower B": "{lower:,}",
    "upper B": "{upper:,}",
    "gap %": "{gap:.3f}",
    "certificate": "{certificate}",
    "s": "{seconds:.2f}",
}
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {}),
    ("resnet18", {}),
    ("resnet18", {"batch": 2, "image": 64}),
    ("resnet50", {}),
    ("resnet50", {"batch": 1, "image": 64}),
    ("bert", {}),
    ("bert", {"batch": 1}),
    ("bert", {"layers": 2, "batch": 1, "seq": 32}),
    ("word_lm", {}),
    ("word_lm", {"batch": 4, "seq": 10, "hidden": 64, "vocab": 200}),
    ("gpt2", {}),
    ("gpt2", {"batch": 1, "seq": 128}),
    ("gpt2", {"batch": 2, "seq": 64, "layers": 2}),
    ("densenet", {"batch": 2}),
    ("inception_v3", {"batch": 2}),
    ("unet", {}),
    ("vit", {}),
    ("diffusion", {}),
    ("transformer", {}),
    ("mixtral", {}),
    ("nmt", {}),
    ("treelstm", {}),
    ("unrolled_gan", {}),
    ("speech", {}),
]
IRREGULAR: list[tuple[str, Graph]] = [
    *(
        (f"random, {sources:.0%} sources", random_dag(seed, 60, sources))
        for sources in (0.1, 0.3, 0.6)
        for seed in (1, 2)
    ),
    ("16 chains of 3, joined", joined_chains(16, 3)),
    ("30 chains of 2, joined", joined_chains(30, 2)),
]


def cases(run: harness.Run) -> Iterator[tuple[str, Graph]]:
    chosen = run.options.names
    for name, settings in STEPS[: 1 if run.smallest else None]:
        if not chosen or name in chosen:
            yield harness.named(name, settings), capture(name, hyperparameters=settings)
    if not chosen:
        yield from IRREGULAR[: 1 if run.smallest else None]


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("graph",))
    for name, graph in cases(run):
        start = time.process_time()
        found = footprint(graph, time_limit_s=600)
        seconds = time.process_time() - start
        assert replay(graph, found.plan).peak_bytes == found.upper_bytes
        if not isinstance(found.proof, Exhausted):
            assert verify(graph, found.proof, device=found.device) == found.lower_bytes
        sizes = {"captured": found.captured_peak_bytes, "lower": found.lower_bytes, "upper": found.upper_bytes}
        gap = 100 * found.gap_bytes / max(found.lower_bytes, 1)
        row = {"graph": name, "ops": len(graph), **sizes, "gap": gap}
        table.add({**row, "certificate": found.certificate, "seconds": seconds})


if __name__ == "__main__":
    harness.main(__doc__, measure)
