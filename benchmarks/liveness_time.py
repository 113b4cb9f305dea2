"""CPU time and memory of a liveness analysis: kernel traces of G10, and a made-up training step of a given size.

    python benchmarks/liveness_time.py [REFERENCE] [--write]

Each graph is analysed in a process of its own. ``analysis`` is everything that the files of a liveness analysis tell:
lives of tensors and of storages with exact times, memory over time, all periods in both orders; ``modules`` is what
importing the code for it takes, ``reading`` the files of the trace. REFERENCE: the folder with the traces (``g10``).
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KERNELS, TENSORS = 2500, 4500
RESULTS = Path(__file__).parent / "results" / "liveness_time.md"


def made_up(kernels: int, tensors: int) -> Any:
    """A step whose backward reads what its forward made, with weights and workspaces, as a Trace."""
    from tensortide.graph.model import TENSOR, Call, Graph, Op, Phase, Role, Storage, Tensor
    from tensortide.importers.imported import with_names
    from tensortide.timing.exact import UNIT_CYCLE, Times

    dice = random.Random(0)
    half, weights = kernels // 2, kernels // 8
    uses: list[list[int]] = [[] for _ in range(weights)]
    inputs: list[list[int]] = [[] for _ in range(kernels)]
    outputs: list[list[int]] = [[] for _ in range(kernels)]
    for index in range(tensors - weights):
        kernel = index % kernels
        tensor = len(uses)
        uses.append([kernel])
        outputs[kernel].append(tensor)
        if index < kernels:
            readers = [kernel + 1, *([kernels - kernel] if kernel < half else [])]
            for reader in {reader for reader in readers if kernel < reader < kernels}:
                inputs[reader].append(tensor)
                uses[tensor].append(reader)
    for tensor in range(weights):
        first = dice.randrange(half)
        for kernel in {first, kernels - 1 - first}:
            inputs[kernel].append(tensor)
            uses[tensor].append(kernel)
    calls: dict[Call, int] = {}
    ops = []
    for kernel in range(kernels):
        returns = (TENSOR,) * len(outputs[kernel])
        arguments = tuple((f"x{index}", TENSOR) for index in range(len(inputs[kernel])))
        call = calls.setdefault(Call("made.up.default", arguments, len(arguments), (), returns), len(calls))
        phase = Phase.FORWARD if kernel < half else Phase.BACKWARD
        ops.append(Op(call, tuple(inputs[kernel]), tuple(outputs[kernel]), phase))
    sizes = [dice.randrange(1, 1 << 16) * 4096 for _ in uses]
    storages = [
        Storage(size, "cuda", Role.PARAMETER, None, None)
        if index < weights
        else Storage(size, "cuda", Role.ACTIVATION, min(at), max(at) + 1)
        for index, (size, at) in enumerate(zip(sizes, uses, strict=True))
    ]
    views = tuple(Tensor(index, "uint8", (size,), (1,)) for index, size in enumerate(sizes))
    graph = Graph(tuple(ops), tuple(calls), views, tuple(storages))
    return with_names(graph, Times(tuple(dice.randrange(1, 10**7) for _ in range(kernels)), UNIT_CYCLE))


def one(target: str) -> dict[str, Any]:
    """Analyse one graph in this process."""
    began = time.process_time()
    import numpy  # noqa: F401

    from tensortide.importers.g10 import read_trace
    from tensortide.reports.liveness_files.lives import timed_lives
    from tensortide.timelines import liveness

    imported = time.process_time()
    trace = read_trace(target) if target else made_up(KERNELS, TENSORS)
    read = time.process_time()
    timed = timed_lives(trace)
    by_storage = liveness(trace.graph, "storage", timed.times.ticks)
    rows = [timed.periods(order) for order in ("creation", "time_size")]
    done = time.process_time()
    assert len(by_storage) == len(trace.graph.storages)
    return {
        "graph": Path(target).name or "made up",
        "kernels": len(trace.graph),
        "tensors": len(trace.tensors),
        "periods": len(rows[0]),
        "modules_s": imported - began,
        "reading_s": read - imported if target else None,
        "analysis_s": done - read,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| graph | kernels | tensors | periods | modules, CPU s | reading, CPU s | analysis, CPU s | peak RSS, MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        reading = "" if row["reading_s"] is None else f"{row['reading_s']:.3f}"
        lines.append(
            f"| {row['graph']} | {row['kernels']:,} | {row['tensors']:,} | {row['periods']:,} | {row['modules_s']:.2f} "
            f"| {reading} | {row['analysis_s']:.3f} | {row['peak_mib']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", nargs="?", type=Path, help="the folder with the traces")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one)))
        return
    found = sorted(options.reference.glob("*/kernels.config*")) if options.reference else []
    targets = ["", *(str(path.parent) for path in found)]
    runs = [[run(target) for _ in range(5)] for target in targets]
    rows = [min(repeated, key=lambda row: row["analysis_s"]) for repeated in runs]
    text = table(rows)
    print(text)
    if options.write:
        machine = f"Python {platform.python_version()}, {platform.machine()}, a shared machine of two cores"
        RESULTS.write_text(
            f"# CPU time of a liveness analysis\n\n`python benchmarks/liveness_time.py REFERENCE --write`, {machine}. "
            f"Best of 5 processes each. Aim: {KERNELS:,} kernels and {TENSORS:,} tensors in under 0.2 CPU s and 300 MB."
            f"\n\n{text}\n"
        )


def run(target: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", target]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
