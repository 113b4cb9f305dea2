"""Simulated ops per CPU second of each online policy, beside DTR's own simulator on the same runs.

    python benchmarks/remat_throughput.py [--write]

Recorded runs of the original with their CPU seconds are read from the reference data (``dtr/runs.jsonl.gz`` and
``dtr/logs``). Both sides play the same cells: finite budgets, eager deallocation, rules of the original. An op counts
once for the step and once for each time that it was recomputed on request; seconds are of the whole run. *Plain
engine*: the same at half the memory, where the original took less than 2 s. Below, a sweep of all logs, budgets and
policies by our rules (limit 2, random policies 10 times).
"""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness

from tensortide.importers.dtrlog.read import read_recording
from tensortide.replays.remat import Simulator
from tests.replays.remat.published import FILES, differs, play, read, simulator

HEURISTICS = ("DTR", "MSPS", "DTREqClass", "LargestStorage", "DTRLocal", "LRU", "RandomStorage")
MODELS = ("ResNet-32 (56)", "U-Net (6)", "Transformer (10)", "Unrolled GAN", "LSTM (512)")
RATIOS = tuple(tenth / 10 for tenth in range(1, 11))
THREADS = 2
COLUMNS = {
    "heuristic": "{heuristic}",
    "log": "{log}",
    "runs": "{runs:d}",
    "of them the same": "{same:d}",
    "ops/s": "{rate:,.0f}",
    "of the original": "{theirs:,.0f}",
    "times": "{times:,.1f}",
    "plain engine": "{plain:,.0f}",
}


def measure(run: harness.Run) -> None:
    folder = harness.reference() / "dtr"
    if not (folder / "logs").is_dir():
        raise SystemExit("recorded DTR logs are not committed: name a folder in TENSORTIDE_REFERENCE")
    models, heuristics = (MODELS[1:2], HEURISTICS[2:3]) if run.smallest else (MODELS, HEURISTICS)
    rows = defaultdict(list)
    for row in read(folder / "runs.jsonl.gz"):
        if row["runtime"] == "RuntimeV2EagerOptimized" and not row["no_dealloc"]:
            rows[row["heuristic"], row["model"]].append(row)
    table = run.table(COLUMNS, ("heuristic", "log"))
    Simulator(read_recording(folder / "logs" / "unet-6.jsonl.gz")).run("dtr-eq")  # compiled, or read from the cache
    for heuristic in heuristics:
        found = [compared(folder, heuristic, model, rows[heuristic, model]) for model in models]
        added = [sum(column) for column in zip(*found, strict=True)]
        for model, sums in (*zip(models, found, strict=True), ("all logs", added)):
            if sums[0]:
                table.add({"heuristic": heuristic, "log": model, **figures(*sums)})
    sweep(run, folder, models, heuristics)


def compared(folder: Path, heuristic: str, model: str, rows: list[harness.Row]) -> list[float]:
    """Play ``rows`` again: runs, runs that came out the same, ops, our seconds and theirs, and the plain engine's ops
    and seconds."""
    sums = [0.0] * 7
    path = folder / "logs" / f"{FILES[model]}.jsonl.gz"
    for row in rows:
        simulator(path, row["runtime"], row["no_dealloc"])._ready  # noqa: B018 (prepared once for all runs)
        start = time.process_time()
        played = play(path, row)
        seconds, ops = time.process_time() - start, row["model_ops_run"] + row["remats_direct"]
        added = [1, not differs(played, row), ops, seconds, row["cpu_s"], 0, 0]
        if row["ratio"] == 0.5 and row["cpu_s"] < 2 and not row["seed"]:
            added[5:] = [ops, harness.seconds(lambda row=row: play(path, row, compiled=False))]
        sums = [a + b for a, b in zip(sums, added, strict=True)]
    return sums


def figures(
    runs: float, same: float, ops: float, ours: float, theirs: float, plain: float, plain_s: float
) -> harness.Row:
    row = {"runs": int(runs), "same": int(same), "ops": int(ops), "rate": ops / ours, "theirs": ops / theirs}
    return {**row, "times": theirs / ours, "plain": plain / plain_s if plain_s else None}


def sweep(run: harness.Run, folder: Path, models: tuple[str, ...], heuristics: tuple[str, ...]) -> None:
    """Play all policies under all budgets on all logs, by our rules."""
    start = time.perf_counter()
    sims = [Simulator(read_recording(folder / "logs" / f"{FILES[model]}.jsonl.gz")) for model in models]
    reading = time.perf_counter() - start
    names = [name for name in heuristics if name != "RandomStorage"]
    names += [f"random:{seed}" for seed in range(10)] if "RandomStorage" in heuristics else []
    cells = [(sim, name, int(sim.baseline_bytes * ratio)) for sim in sims for name in names for ratio in RATIOS]
    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda cell: cell[0].run(cell[1], cell[2], overhead_limit=2).status, cells))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    run.note(
        f"Sweep: {len(cells)} runs in {wall:.1f} s of wall time with {THREADS} threads ({cpu:.1f} s of CPU), after "
        f"{reading:.1f} s to read the logs."
    )


if __name__ == "__main__":
    harness.main(__doc__, measure)
