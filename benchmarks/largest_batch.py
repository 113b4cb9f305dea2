"""The largest batch that trains under a limit on the memory of the process that really ends it.

python benchmarks/largest_batch.py [--write]

Each probe is a process of its own. It builds the workload, takes one step with a single sample (so that libraries are
loaded and workspaces exist), and then limits itself (RLIMIT_DATA: private writable memory) to EXTRA_MIB more than it
has: what does not fit raises. Two steps must pass. Both contenders run with one thread and the same settings of malloc.
The budget is SHARE of ``auto``. The rest is for what kernels allocate for themselves, which a budget does not see: the
convolutions of oneDNN copy their inputs and results into layouts of their own, each as large as an activation.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXTRA_MIB = 160
SHARE = 0.65
TIMEOUT_S = 60
STEPS = 2
WORKLOADS: dict[str, dict[str, Any]] = {
    "resnet18_cifar": {"width": 16},
    "unet": {"height": 64, "width": 64, "filters": 8, "levels": 3},
    "gpt2": {"seq": 64, "hidden": 64, "layers": 6, "heads": 4, "vocab": 256, "positions": 64},
}
RESULT = Path(__file__).parent / "results" / "largest_batch.md"


def probe(name: str, batch: int, budgeted: bool) -> None:
    import torch

    from tensortide.examples import find
    from tensortide.run.budget import Budget

    torch.set_num_threads(1)
    torch.manual_seed(0)
    load = find(name).load()
    load(**WORKLOADS[name], batch=2)()
    if budgeted:
        with Budget(1 << 40):  # whatever is imported when a budget is opened first
            load(**WORKLOADS[name], batch=2)()
    status = Path("/proc/self/status").read_text()
    data = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + (EXTRA_MIB << 20),) * 2)
    step = load(**WORKLOADS[name], batch=batch)
    began = time.process_time()
    if budgeted:
        with Budget(int(Budget("auto").budget_bytes * SHARE)) as memory:
            for _ in range(STEPS):
                step()
        again = memory.usage.recomputations / memory.usage.ops
    else:
        for _ in range(STEPS):
            step()
        again = 0.0
    print((time.process_time() - began) / STEPS / batch, again)


def passes(name: str, batch: int, budgeted: bool) -> tuple[float, float] | None:
    """Seconds per sample and ops run again per op; None if it does not fit, or takes too long."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 16),
    }
    command = [sys.executable, __file__, "probe", name, str(batch), str(int(budgeted))]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(f"  {name} {batch} {budgeted}: {done.stderr.strip().splitlines()[-1][:120]}", file=sys.stderr)
        return None
    seconds, again = map(float, done.stdout.split())
    return seconds, again


def largest(name: str, budgeted: bool, low: int = 0) -> tuple[int, float, float]:
    """The largest batch that passes, to within an eighth, and its figures."""
    best, high = (0, 0.0, 0.0), max(32, low)
    while (found := passes(name, high, budgeted)) is not None:
        best, high = (high, *found), high * 2
    while high - best[0] > max(1, best[0] // 8):
        middle = (high + best[0]) // 2
        found = passes(name, middle, budgeted)
        if found is None:
            high = middle
        else:
            best = (middle, *found)
    return best


def main(write: bool) -> None:
    lines = [
        f"{EXTRA_MIB} MiB of private memory more than after a first step, one thread, {platform.machine()}.",
        "",
        "| workload | batch, plain | batch, budget | ratio | ms per sample, plain | ms, budget | run again |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in WORKLOADS:
        plain, plain_s, _ = largest(name, False)
        ours, ours_s, again = largest(name, True, plain)
        lines.append(
            f"| {name} | {plain} | {ours} | {ours / max(1, plain):.2f} | {plain_s * 1e3:.2f} | {ours_s * 1e3:.2f} "
            f"| {again:.2f} per op |"
        )
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if write:
        RESULT.write_text("# The largest batch under a limit that ends the process\n\n" + text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["probe"]:
        probe(sys.argv[2], int(sys.argv[3]), bool(int(sys.argv[4])))
    else:
        main("--write" in sys.argv)
