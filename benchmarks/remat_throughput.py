"""Simulated ops per CPU second of each online policy, beside DTR's own simulator on the same runs.

    python benchmarks/remat_throughput.py REFERENCE [--write]

REFERENCE is a folder with ``logs`` and ``runs.jsonl.gz``: recorded runs of the original with their CPU seconds. Both
sides play the same cells (finite budgets, eager deallocation); an op counts once for the model and once for each time
that it was asked for again. ``--write`` stores the tables in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tensortide.importers.dtrlog import read_recording
from tensortide.replays.remat import Simulator
from tests.replays.remat.published import FILES, differs, play, read, simulator

RESULTS = Path(__file__).parent / "results" / "remat_throughput.md"
HEURISTICS = ("DTR", "MSPS", "DTREqClass", "LargestStorage", "DTRLocal", "LRU", "RandomStorage")
MODELS = ("ResNet-32 (56)", "U-Net (6)", "Transformer (10)", "Unrolled GAN", "LSTM (512)")
RATIOS = tuple(tenth / 10 for tenth in range(1, 11))
THREADS = 2
Sums = defaultdict[tuple[str, str], list[float]]


def rate(sums: Sums, heuristic: str, models: tuple[str, ...], column: int) -> str:
    cells = [sums[heuristic, model] for model in models if (heuristic, model) in sums]
    seconds = sum(cell[column] for cell in cells)
    return f"{sum(cell[0] for cell in cells) / seconds:,.0f}" if seconds else ""


def compared(folder: Path) -> tuple[Sums, int, int]:
    """Ops, our seconds, theirs, and the plain engine's ops and seconds of some cells, per heuristic and model."""
    sums: Sums = defaultdict(lambda: [0.0] * 5)
    count = same = 0
    rows = [row for row in read(folder / "runs.jsonl.gz") if row["runtime"] == "RuntimeV2EagerOptimized"]
    for row in rows:
        if row["no_dealloc"] or row["heuristic"] not in HEURISTICS:
            continue
        path = folder / "logs" / f"{FILES[row['model']]}.jsonl.gz"
        simulator(path, row["runtime"], row["no_dealloc"])._ready  # noqa: B018 (prepared once for all runs)
        start = time.process_time()
        run = play(path, row)
        seconds = time.process_time() - start
        count += 1
        same += not differs(run, row)
        ops = row["model_ops_run"] + row["remats_direct"]
        added = [ops, seconds, row["cpu_s"], 0, 0]
        if row["ratio"] == 0.5 and row["cpu_s"] < 2 and not row["seed"]:
            start = time.process_time()
            play(path, row, compiled=False)
            added[3:] = [ops, time.process_time() - start]
        key = row["heuristic"], row["model"]
        sums[key] = [a + b for a, b in zip(sums[key], added, strict=True)]
    return sums, count, same


def sweep(folder: Path) -> tuple[int, float, float, float]:
    """All policies under all budgets on all logs, by our rules: runs, seconds to read, wall and CPU seconds."""
    start = time.perf_counter()
    sims = [Simulator(read_recording(folder / "logs" / f"{FILES[model]}.jsonl.gz")) for model in MODELS]
    reading = time.perf_counter() - start
    names = [*HEURISTICS[:-1], *(f"random:{seed}" for seed in range(10))]
    cells = [(sim, name, ratio) for sim in sims for name in names for ratio in RATIOS]
    for sim in sims:
        sim.baseline_bytes  # noqa: B018
    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(played, cells))
    return len(cells), reading, time.perf_counter() - start, time.process_time() - cpu


def played(cell: tuple[Simulator, str, float]) -> str:
    sim, name, ratio = cell
    return sim.run(name, int(sim.baseline_bytes * ratio), overhead_limit=2).status


def tables(folder: Path) -> list[str]:
    Simulator(read_recording(folder / "logs" / "unet-6.jsonl.gz")).run("dtr-eq")  # compiled, or read from the cache
    sums, count, same = compared(folder)
    cells: dict[str, Any] = {h: [m for m in MODELS if (h, m) in sums] for h in HEURISTICS}
    lines = [
        "| heuristic | ops/s, all logs | of the original | times | " + " | ".join(MODELS) + " | plain engine |",
        "|---|---:|---:|---:|" + "---:|" * len(MODELS) + "---:|",
    ]
    for heuristic in HEURISTICS:
        ours, theirs = (sum(sums[heuristic, m][column] for m in cells[heuristic]) for column in (1, 2))
        each = [
            f"{rate(sums, heuristic, (m,), 1)} ({rate(sums, heuristic, (m,), 2)})" if m in cells[heuristic] else ""
            for m in MODELS
        ]
        plain = [sums[heuristic, m] for m in cells[heuristic]]
        slow = sum(cell[3] for cell in plain) / max(sum(cell[4] for cell in plain), 1e-9)
        lines.append(
            f"| {heuristic} | {rate(sums, heuristic, MODELS, 1)} | {rate(sums, heuristic, MODELS, 2)} | "
            f"{theirs / ours:,.0f} | {' | '.join(each)} | {slow:,.0f} |"
        )
    runs, reading, wall, cpu = sweep(folder)
    swept = (
        f"Sweep of {len(MODELS)} logs, {len(RATIOS)} budgets and {len(HEURISTICS)} heuristics, random ones 10 times, "
        f"by our rules, limit 2: {runs} runs in {wall:.1f} s of wall time with {THREADS} threads ({cpu:.1f} s of CPU), "
        f"after {reading:.1f} s to read the logs."
    )
    return [
        *lines,
        "",
        f"In brackets the original. {same} of the {count} runs came out the same, to the last eviction.",
        "",
        swept,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = tables(given.folder)
    print("\n".join(lines))
    if given.write:
        RESULTS.write_text(
            "# Simulated ops per CPU second\n\n`python benchmarks/remat_throughput.py REFERENCE --write`, Python "
            f"{platform.python_version()}, {platform.machine()}, a shared machine of two cores. Ops of the model and "
            "ops run again, by CPU seconds of the whole run, over the cells that the original was recorded on (finite "
            "budgets, eager deallocation, rules of the original). *Plain engine*: the same at half the memory.\n\n"
            + "\n".join(lines)
            + "\n"
        )


if __name__ == "__main__":
    main()
