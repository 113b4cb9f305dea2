"""Runs of DTR's own simulator, and ours in the same words."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans.remat.schedule import Event, Recording, schedule
from tensortide.replays.remat import Deallocation, Simulation, Simulator

FILES = {
    "ResNet-32 (56)": "resnet32-56",
    "U-Net (6)": "unet-6",
    "Transformer (10)": "transformer-10",
    "Unrolled GAN": "unroll_gan-512",
    "Unrolled GAN (512)": "unroll_gan-512",
    "LSTM (512)": "lstm-128",
}
"""Models of the published runs, and their logs."""
NEIGHBOURHOODS = frozenset({"DTR", "MSPS", "DTRUnopt", "AbESizeStale", "AbESize", "AbEStale", "AbE"})
"""Heuristics for which the original keeps regions, which go stale (section 4.3 of the specification)."""


def read(path: Path) -> Any:
    """A JSON file, compressed or not; of several lines if its name says so."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.splitlines()] if ".jsonl" in path.name else json.loads(data)


@functools.cache
def recording(path: Path, without_releases: bool = False) -> Recording:
    """The log in the original's reading."""
    read_in = read_recording(path, copy_on_write=True)
    if not without_releases:
        return read_in
    heard = read_in.kinds != Event.RELEASE
    return Recording(read_in.graph, read_in.durations_ns, read_in.kinds[heard], read_in.indexes[heard])


@functools.cache
def simulator(path: Path, runtime: str, no_dealloc: bool) -> Simulator:
    """By the rules of one of the original's runtimes."""
    policy: Deallocation = "eager" if "Eager" in runtime else "none"
    if runtime == "RuntimeV1":
        return Simulator(recording(path, no_dealloc), compat=True, deallocation="banish")
    return Simulator(recording(path), compat=True, deallocation="ignore" if no_dealloc else policy)


def play(path: Path, row: dict[str, Any], compiled: bool | None = None) -> Simulation:
    """The run of ``row`` again."""
    name = row["heuristic"] if row.get("seed") is None else f"random:{row['seed']}"
    played = simulator(path, row["runtime"], row["no_dealloc"])
    return played.run(name, row["budget"], overhead_limit=row["overhead_limit"], compiled=compiled)


def figures(run: Simulation) -> dict[str, object]:
    """What is compared."""
    return {
        "status": run.status,
        "clock": run.clock_ns,
        "remat_compute": run.remat_ns,
        "max_memory": run.peak_bytes,
        "final_memory": run.final_bytes,
        "evictions": run.counts[2] + run.counts[3],
        "heuristic_evals": run.evaluations,
        "evict_seq_sha256": run.eviction_hash,
    }


def differs(run: Simulation, row: dict[str, Any]) -> dict[str, tuple[object, object]]:
    """Figures that are not those of ``row``: ours, and theirs."""
    return {key: (ours, row[key]) for key, ours in figures(run).items() if ours != row[key]}


def cell(row: dict[str, Any]) -> tuple[object, ...]:
    """What tells a run of a log from the others."""
    return tuple(row[key] for key in ("runtime", "heuristic", "ratio", "no_dealloc"))


def largest_op(path: Path) -> int:
    """Bytes of the op that touches most: its outputs and its inputs' own sizes, views none ("bottleneck")."""
    made = schedule(recording(path), views=True, workspace=False)
    sizes, ins, outs = made.nbytes.tolist(), made.inputs.tolist(), made.output_ends.tolist()
    ends = made.input_ends.tolist()
    touched = (
        sum(sizes[outs[op] : outs[op + 1]]) + sum(sizes[v] for v in ins[ends[op] : ends[op + 1]])
        for op in range(len(made.cost_ns))
    )
    return int(max(touched))
