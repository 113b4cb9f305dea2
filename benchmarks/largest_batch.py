"""The largest batch that trains under a limit on the memory of the process that really ends it.

    python benchmarks/largest_batch.py [--write] [WORKLOAD ...]

Each probe is a process of its own. It builds the workload, takes one step with a single sample (so that libraries are
loaded and workspaces exist), and then limits itself (RLIMIT_DATA: private writable memory) to EXTRA_MIB more than it
has: what does not fit raises. Two steps must pass. Both contenders run with one thread and the same settings of malloc.
The budget is the largest of SHARES of ``auto`` that passes, as somebody would find it who trains: the rest is for what
kernels allocate for themselves, which a budget does not see.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import harness

EXTRA_MIB = 160
SHARES = (0.9, 0.75, 0.6, 0.5, 0.4)
TIMEOUT_S = 60
STEPS = 2
WORKLOADS: dict[str, dict[str, Any]] = {
    "resnet18_cifar": {"width": 16},
    "unet": {"height": 64, "width": 64, "filters": 8, "levels": 3},
    "gpt2": {"seq": 64, "hidden": 64, "layers": 6, "heads": 4, "vocab": 256, "positions": 64},
}


class Found(NamedTuple):
    """A batch that passes: the budget as a share of ``auto``, seconds per sample, recomputations per op."""

    batch: int
    share: float
    seconds: float
    recomputed: float


COLUMNS = {
    "workload": "{workload}",
    "batch, plain": "{plain:d}",
    "batch, budget": "{batch:d}",
    "ratio": "{ratio:.2f}",
    "budget, of auto": "{share:.0%}",
    "ms per sample, plain": "{plain_ms:.2f}",
    "ms, budget": "{ms:.2f}",
    "recomputed per op": "{recomputed:.2f}",
}
MALLOC = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 16)}


def probe(name: str, batch: int, share: float) -> tuple[float, float]:
    """Seconds per sample and recomputations per op, if the batch fits."""
    import torch

    from tensortide.examples import find
    from tensortide.run.budget import Budget

    torch.set_num_threads(1)
    torch.manual_seed(0)
    load = find(name).load()
    load(**WORKLOADS[name], batch=2)()
    if share:
        with Budget(1 << 40):  # whatever is imported when a budget is opened first
            load(**WORKLOADS[name], batch=2)()
    status = Path("/proc/self/status").read_text()
    data = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + (EXTRA_MIB << 20),) * 2)
    step = load(**WORKLOADS[name], batch=batch)
    began = time.process_time()
    if share:
        with Budget("auto") as free:
            limit = int(free.budget_bytes * share)
        with Budget(limit) as memory:
            for _ in range(STEPS):
                step()
        recomputed = memory.usage.recomputations / memory.usage.ops
    else:
        for _ in range(STEPS):
            step()
        recomputed = 0.0
    return (time.process_time() - began) / STEPS / batch, recomputed


def passes(run: harness.Run, name: str, batch: int, budgeted: bool) -> Found | None:
    """The fastest that passes at this batch; None if nothing does, or it takes too long."""
    shares = SHARES[:1] if run.smallest else SHARES
    for share in shares if budgeted else (0.0,):
        try:
            return Found(batch, share, *run.child(probe, name, batch, share, timeout_s=TIMEOUT_S, **MALLOC))
        except harness.ChildFailed as failed:
            print(f"  {name} {batch} {share}: {str(failed)[:120]}", file=sys.stderr)
    return None


def largest(run: harness.Run, name: str, budgeted: bool, low: int = 32) -> Found:
    """The largest batch that passes, to within a sixteenth."""
    best, high = Found(0, 0.0, 0.0, 0.0), low
    while (found := passes(run, name, high, budgeted)) is not None:
        best, high = found, high * 2
    while high - best.batch > max(1, best.batch // 16):
        middle = (high + best.batch) // 2
        found = passes(run, name, middle, budgeted)
        if found is None:
            high = middle
        else:
            best = found
    return best


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("workload",))
    for name in run.cases(WORKLOADS):
        if run.smallest:
            plain, ours = (passes(run, name, 2, budgeted) or Found(0, 0.0, 0.0, 0.0) for budgeted in (False, True))
        else:
            plain = largest(run, name, False)
            ours = largest(run, name, True, plain.batch * 2)
        row = {"workload": name, "plain": plain.batch, **ours._asdict(), "ratio": ours.batch / max(1, plain.batch)}
        table.add({**row, "plain_ms": plain.seconds * 1e3, "ms": ours.seconds * 1e3})


if __name__ == "__main__":
    harness.main(__doc__, measure)
