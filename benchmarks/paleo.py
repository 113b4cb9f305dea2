"""Paleo's predictions as ``tensortide.timing.paleo`` reproduces them, beside what the original printed.

    python benchmarks/paleo.py [--write] [--smallest]

Every figure that the reference tables give; of the entries that asked cuDNN for its algorithms what is no computation.
Deviations are
relative; those of figures below 1 ms, where the tables' rounded digits say no more, are in ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import harness

from tensortide.timing.paleo import PLATFORMS
from tests.timing import paleo_tables as tables

TABLES: dict[str, Callable[[Path], Iterator[tuple[float, float]]]] = {
    "layers: computation and memory of each part": tables.layer_pairs,
    "steps: forward, backward, update, with and without overlap": tables.total_pairs,
    "case studies of scaling": tables.case_pairs,
    "scaling, 432 settings on 1 to 128 workers": tables.scaling_pairs,
    **{
        f"the authors' table of 2016, {framework}": partial(tables.demo_pairs, framework=framework)
        for framework in PLATFORMS
        if framework != "ideal"
    },
    "the same table with cuDNN: exchanges alone": tables.exchange_pairs,
}


def measure(run: harness.Run) -> None:
    folder = harness.reference() / "placement"
    table = run.table(
        {"figures": "{name}", "count": "{count:,}", "mean deviation": "{mean:.1e}", "largest": "{most:.1e}"},
        key=("name",),
    )
    for name, pairs in run.cases(TABLES).items():
        off = [tables.off(*pair) for pair in pairs(folder)]
        table.add({"name": name, "count": len(off), "mean": sum(off) / len(off), "most": max(off)})


if __name__ == "__main__":
    harness.main(__doc__, measure)
