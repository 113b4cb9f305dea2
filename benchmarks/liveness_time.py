"""CPU time and memory of a liveness analysis.

    python benchmarks/liveness_time.py [--write] [TRACE ...]

Published kernel traces of G10 from the reference data, and a made-up training step of 2,500 kernels and 4,500 tensors
(aim: under 0.2 CPU s and 300 MB). Each graph is analysed in processes of its own, of which the best of five counts.
*Analysis* is everything that the files of a liveness analysis hold: lives of tensors and of storages with exact times,
memory over time, all periods in both orders; *modules* is what importing the code for it takes, *reading* the files of
the trace.
"""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path
from typing import Any

import harness

KERNELS, TENSORS = 2500, 4500
MADE_UP = "made up"
ROUNDS = 5
COLUMNS = {
    "graph": "{graph}",
    "kernels": "{kernels:,}",
    "tensors": "{tensors:,}",
    "periods": "{periods:,}",
    "modules, CPU s": "{modules_s:.2f}",
    "reading, CPU s": "{reading_s:.3f}",
    "analysis, CPU s": "{analysis_s:.3f}",
    "peak RSS, MiB": "{peak_mib:.0f}",
}


def made_up(kernels: int, tensors: int) -> Any:
    """A step whose backward reads what its forward made, with weights and workspaces, as a Trace."""
    from tensortide.graph.model import TENSOR, Call, Graph, Op, Phase, Role, Storage, Tensor
    from tensortide.importers.imported import with_names
    from tensortide.timing.durations import UNIT_CYCLE, Times

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


def analysed(target: str) -> harness.Row:
    """Analyse one graph in this process."""
    began = time.process_time()
    import numpy  # noqa: F401

    from tensortide.importers.g10.export import timed_lives
    from tensortide.importers.g10.read import read_trace
    from tensortide.timelines import liveness

    imported = time.process_time()
    trace = read_trace(target) if target != MADE_UP else made_up(KERNELS, TENSORS)
    read = time.process_time()
    timed = timed_lives(trace)
    by_storage = liveness(trace.graph, "storage", timed.times.ticks)
    rows = [timed.periods(order) for order in ("creation", "time_size")]
    done = time.process_time()
    assert len(by_storage) == len(trace.graph.storages)
    return {
        "graph": Path(target).name,
        "kernels": len(trace.graph),
        "tensors": len(trace.tensors),
        "periods": len(rows[0]),
        "modules_s": imported - began,
        "reading_s": read - imported if target != MADE_UP else None,
        "analysis_s": done - read,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure(run: harness.Run) -> None:
    found = sorted((harness.reference() / "g10").glob("*/kernels.config*"))
    targets = {MADE_UP: MADE_UP, **{path.parent.name: str(path.parent) for path in found}}
    table = run.table(COLUMNS, ("graph",))
    for target in run.cases(targets).values():
        repeated = [run.child(analysed, target) for _ in range(1 if run.smallest else ROUNDS)]
        table.add(min(repeated, key=lambda row: row["analysis_s"]))


if __name__ == "__main__":
    harness.main(__doc__, measure)
