"""Ops recomputed under a live budget: predicted and measured time.

    python benchmarks/recompute_time.py [--write] [WORKLOAD ...]

Each workload trains under two budgets, on one thread. The simulator plays every step with the durations that its own
ops had in that step, by the same policy and budget (as ``tensortide run --compare``); beside it stands what the ops
that were recomputed took when they ran first in that step, which is the same where the simulator's decisions are.
Figures are medians over steps, page faults are of the whole step, all times are of the processor. What it takes to put
arguments together is not part of an op's time, neither when it runs first nor later; it has its own column.
"""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import harness
import torch

from tensortide.examples import find
from tensortide.recorder import capture
from tensortide.run.budget import Budget
from tensortide.run.measure import compared
from tensortide.run.traced import LiveStep

MIB = 1 << 20
STEPS, WARM = 7, 3
WORKLOADS: dict[str, tuple[dict[str, Any], tuple[float, float]]] = {
    "gpt2": (
        {"batch": 4, "seq": 128, "hidden": 256, "layers": 6, "heads": 4, "vocab": 512, "positions": 128},
        (0.7, 0.5),
    ),
    "unet": ({"batch": 4, "height": 96, "width": 96, "filters": 16, "levels": 3}, (0.7, 0.5)),
    "resnet18_cifar": ({"batch": 32}, (0.8, 0.65)),
    "lstm": ({"batch": 128, "seq": 24, "inputs": 128, "hidden": 256, "layers": 2}, (0.8, 0.65)),
}
"""Settings, and budgets as shares of what the step needs."""
SMALLEST = {"batch": 8, "seq": 32, "hidden": 32, "layers": 2, "heads": 2, "vocab": 64, "positions": 32}
COLUMNS = {
    "workload": "{workload}",
    "budget": "{share:.0%}",
    "MiB": "{limit_mib:.0f}",
    "own ops ms": "{base_ms:.0f}",
    "ops recomputed, predicted": "{predicted_ops:.0f}",
    "ops recomputed": "{ops:.0f}",
    "predicted ms": "{predicted_ms:.1f}",
    "same ops first ms": "{first_ms:.1f}",
    "measured ms": "{measured_ms:.1f}",
    "over first": "{over:+.1%}",
    "arguments us per op": "{arguments_us:.0f}",
    "page faults": "{faults:.0f}",
}


def first_ns(step: LiveStep) -> int:
    """The time that the recomputed ops of ``step`` took when they ran first."""
    return sum(step.durations_ns[op] for op in step.run_op[step.is_recompute].tolist())


def measure(run: harness.Run) -> None:
    torch.set_num_threads(1)
    table = run.table(COLUMNS, ("workload", "share"))
    for name, (settings, shares) in run.cases(WORKLOADS).items():
        torch.manual_seed(0)
        step = find(name).load()(**(SMALLEST if run.smallest else settings))
        graph = capture(step)
        step()
        with Budget(1 << 60) as free:
            before = free.resident_bytes
            step()
        needs = free.usage.peak_bytes - before
        for share in shares[:1] if run.smallest else shares:
            figures = under(step, graph, before + int(needs * share), 1 if run.smallest else STEPS)
            table.add({"workload": name, "share": share, **figures})


def under(step: Any, graph: Any, limit: int, steps: int) -> harness.Row:
    """Medians over the steps under one budget."""
    arguments, faulted = [], []
    with Budget(limit, graph=graph, clock=time.process_time_ns) as budget:
        for index in range(WARM + steps):
            spent, seen = budget.usage.arguments_ns, resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            step()
            if index >= WARM:
                arguments.append(budget.usage.arguments_ns - spent)
                faulted.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - seen)
    latest = budget.steps[-steps:]
    each = [compared(budget, [one]) for one in latest]
    middle = statistics.median
    ops = middle(both.measured.recomputations for both in each)
    return {
        "limit_mib": limit / MIB,
        "ops": ops,
        "faults": middle(faulted),
        "base_ms": middle(both.measured.base_ns for both in each) / 1e6,
        "predicted_ops": middle(both.predicted.recomputations for both in each),
        "predicted_ms": middle(both.predicted.recompute_ns for both in each) / 1e6,
        "first_ms": middle(map(first_ns, latest)) / 1e6,
        "measured_ms": middle(both.measured.recompute_ns for both in each) / 1e6,
        "over": middle(
            one.figures.recompute_ns / first_ns(one) - 1 if one.is_recompute.any() else 0.0 for one in latest
        ),
        "arguments_us": middle(arguments) / ops / 1e3 if ops else 0,
    }


if __name__ == "__main__":
    harness.main(__doc__, measure)
