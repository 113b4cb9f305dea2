"""The largest batch that trains under a limit on the memory of the process that really ends it.

python benchmarks/largest_batch.py [--write]

Each probe is a process of its own. It builds the workload, takes one step with a single sample (so that libraries are
loaded and workspaces exist), and then limits itself (RLIMIT_DATA: private writable memory) to EXTRA_MIB more than it
has: what does not fit raises. Two steps must pass. Both contenders run with one thread and the same settings of malloc.
The budget is the largest of SHARES of ``auto`` that passes, as somebody would find it who trains: the rest is for what
kernels allocate for themselves, which a budget does not see.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

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
    """A batch that passes: the budget as a share of ``auto``, seconds per sample, ops run again per op."""

    batch: int
    share: float
    seconds: float
    again: float


RESULT = Path(__file__).parent / "results" / "largest_batch.md"


def probe(name: str, batch: int, share: float) -> None:
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
        again = memory.usage.recomputations / memory.usage.ops
    else:
        for _ in range(STEPS):
            step()
        again = 0.0
    print((time.process_time() - began) / STEPS / batch, again)


def passes(name: str, batch: int, budgeted: bool) -> Found | None:
    """What passes at this batch; None if nothing does."""
    for share in SHARES if budgeted else (0.0,):
        if (found := run(name, batch, share)) is not None:
            return Found(batch, share, *found)
    return None


def run(name: str, batch: int, share: float) -> tuple[float, float] | None:
    """Seconds per sample and ops run again per op; None if it does not fit, or takes too long."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 16),
    }
    command = [sys.executable, __file__, "probe", name, str(batch), str(share)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(f"  {name} {batch} {share}: {done.stderr.strip().splitlines()[-1][:120]}", file=sys.stderr)
        return None
    seconds, again = map(float, done.stdout.split())
    return seconds, again


def largest(name: str, budgeted: bool, low: int = 32) -> Found:
    """The largest batch that passes, to within a sixteenth."""
    best, high = Found(0, 0.0, 0.0, 0.0), low
    while (found := passes(name, high, budgeted)) is not None:
        best, high = found, high * 2
    while high - best.batch > max(1, best.batch // 16):
        middle = (high + best.batch) // 2
        found = passes(name, middle, budgeted)
        if found is None:
            high = middle
        else:
            best = found
    return best


def main(write: bool) -> None:
    lines = [
        f"{EXTRA_MIB} MiB of private memory more than after a first step, one thread, {platform.machine()}.",
        "",
        "| workload | batch, plain | batch, budget | ratio | budget | ms per sample, plain | ms, budget | run again |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in WORKLOADS:
        plain = largest(name, False)
        ours = largest(name, True, plain.batch * 2)
        lines.append(
            f"| {name} | {plain.batch} | {ours.batch} | {ours.batch / max(1, plain.batch):.2f} "
            f"| {ours.share:.0%} of auto | {plain.seconds * 1e3:.2f} | {ours.seconds * 1e3:.2f} "
            f"| {ours.again:.2f} per op |"
        )
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if write:
        RESULT.write_text("# The largest batch under a limit that ends the process\n\n" + text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["probe"]:
        probe(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        main("--write" in sys.argv)
