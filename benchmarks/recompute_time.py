"""How long ops take that run again under a live budget, against what the simulator says of the very same step.

python benchmarks/recompute_time.py [--write] [WORKLOAD ...]

Each workload trains under two budgets, on one thread. The simulator plays every step with the durations that its own
ops had in that step, by the same policy and budget (as ``tensortide run --compare``); beside it stands what the ops
that really ran again took when they ran first in that step, which is the same where the simulator's decisions are.
Figures are medians over steps, page faults are of the whole step, all times are of the processor. What it takes to put
arguments together is not part of an op's time, neither when it runs first nor again; it has its own column.
"""

from __future__ import annotations

import platform
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tensortide.examples import find
from tensortide.recorder import capture
from tensortide.run.budget import Budget
from tensortide.run.compared import compared
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
COLUMNS = (
    *("workload", "budget", "own ops ms", "ops again, predicted", "ops again", "predicted ms", "same ops first ms"),
    *("again ms", "over first", "arguments us per op", "page faults"),
)
RESULT = Path(__file__).parent / "results" / "recompute_time.md"


@dataclass(frozen=True)
class Row:
    """Medians over the steps under one budget; nanoseconds per step, page faults of the whole step."""

    workload: str
    limit_bytes: int
    share: float
    base_ns: float
    ops: float
    predicted_ops: float
    predicted_ns: float
    first_ns: float
    measured_ns: float
    over: float
    arguments_ns: float
    faults: float

    def line(self) -> str:
        figures = (
            self.workload,
            f"{self.share:.0%} ({self.limit_bytes / MIB:.0f} MiB)",
            f"{self.base_ns / 1e6:.0f}",
            f"{self.predicted_ops:.0f}",
            f"{self.ops:.0f}",
            f"{self.predicted_ns / 1e6:.1f}",
            f"{self.first_ns / 1e6:.1f}",
            f"{self.measured_ns / 1e6:.1f}",
            f"{self.over:+.1%}",
            f"{self.arguments_ns / self.ops / 1e3 if self.ops else 0:.0f}",
            f"{self.faults:.0f}",
        )
        return f"| {' | '.join(figures)} |"


def first_ns(step: LiveStep) -> int:
    """What the ops of ``step`` that ran again took when they ran first."""
    return sum(step.durations_ns[op] for op in step.run_op[step.is_recompute].tolist())


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def rows(name: str) -> list[Row]:
    settings, shares = WORKLOADS[name]
    torch.manual_seed(0)
    step = find(name).load()(**settings)
    graph = capture(step)
    step()
    with Budget(1 << 60) as free:
        before = free.resident_bytes
        step()
    needs = free.usage.peak_bytes - before
    return [row(name, share, step, graph, before + int(needs * share)) for share in shares]


def row(name: str, share: float, step: Any, graph: Any, limit: int) -> Row:
    arguments, faulted = [], []
    with Budget(limit, graph=graph, clock=time.process_time_ns) as budget:
        for _ in range(WARM):
            step()
        for _ in range(STEPS):
            spent, seen = budget.usage.arguments_ns, faults()
            step()
            arguments.append(budget.usage.arguments_ns - spent)
            faulted.append(faults() - seen)
    latest = budget.steps[-STEPS:]
    each = [compared(budget, [one]) for one in latest]
    middle = statistics.median
    return Row(
        workload=name,
        limit_bytes=limit,
        share=share,
        base_ns=middle(both.measured.base_ns for both in each),
        ops=middle(both.measured.recomputations for both in each),
        predicted_ops=middle(both.predicted.recomputations for both in each),
        predicted_ns=middle(both.predicted.recompute_ns for both in each),
        first_ns=middle(map(first_ns, latest)),
        measured_ns=middle(both.measured.recompute_ns for both in each),
        over=middle(one.recompute_ns / first_ns(one) - 1 if one.recomputations else 0.0 for one in latest),
        arguments_ns=middle(arguments),
        faults=middle(faulted),
    )


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    chosen = [name for name in WORKLOADS if name in arguments] or list(WORKLOADS)
    lines = [
        "# Ops that run again: predicted and measured time",
        "",
        " ".join((__doc__ or "").split("\n\n")[2].split()),
        "",
        f"PyTorch {torch.__version__}, {platform.machine()}, one thread.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---|" + "---:|" * (len(COLUMNS) - 2),
    ]
    print("\n".join(lines[-2:]))
    for name in chosen:
        for found in rows(name):
            lines.append(found.line())
            print(lines[-1], flush=True)
    if "--write" in arguments:
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
