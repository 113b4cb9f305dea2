"""Minimal footprint of training steps and irregular graphs: bound, best order, gap, time, and the captured order.

    python benchmarks/minimal_footprint.py [--quick] [--write]

Every order is replayed, and every proof but an exhausted search is checked again from the graph; ``--write`` stores the
table in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tensortide import capture, footprint
from tensortide.graph import Graph
from tensortide.plans.order.proof import Exhausted, verify
from tensortide.replays import replay
from tests.plans.dags import joined_chains, random_dag

RESULTS = Path(__file__).parent / "results" / "minimal_footprint.md"
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


def cases(quick: bool) -> Iterator[tuple[str, Graph]]:
    for name, settings in STEPS[:7] if quick else STEPS:
        text = ", ".join(f"{key} {value}" for key, value in settings.items())
        yield f"{name} ({text})" if text else name, capture(name, hyperparameters=settings)
    yield from IRREGULAR


def row(name: str, graph: Graph) -> tuple[str, ...]:
    start = time.process_time()
    found = footprint(graph, time_s=600)
    seconds = time.process_time() - start
    assert replay(graph, found.plan).peak_bytes == found.upper_bytes
    if not isinstance(found.proof, Exhausted):
        assert verify(graph, found.proof, device=found.device) == found.lower_bytes
    return (
        name,
        f"{len(graph):,}",
        f"{found.captured_peak_bytes:,}",
        f"{found.lower_bytes:,}",
        f"{found.upper_bytes:,}",
        f"{100 * found.gap_bytes / max(found.lower_bytes, 1):.3f}",
        found.certificate,
        f"{seconds:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--quick", "--write"):
        parser.add_argument(option, action="store_true")
    asked = parser.parse_args()
    head = ("graph", "ops", "captured order B", "lower B", "upper B", "gap %", "certificate", "s")
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * 5}---|---:|"]
    print("\n".join(lines))
    for name, graph in cases(asked.quick):
        lines.append(f"| {' | '.join(row(name, graph))} |")
        print(lines[-1], flush=True)
    if asked.write:
        RESULTS.write_text("\n".join([*_title(), *lines, ""]))


def _title() -> Iterator[str]:
    yield "# Minimal footprint: the smallest peak over all orders of a step's ops"
    yield ""
    yield "`python benchmarks/minimal_footprint.py --write`. Seconds of CPU time, of the search alone, which uses"
    yield "one core."
    yield "*Captured order* is under the same lifetimes (`docs/memory.md`)."
    yield ""
    yield f"{platform.processor() or platform.machine()}; Python {platform.python_version()}."
    yield ""


if __name__ == "__main__":
    main()
