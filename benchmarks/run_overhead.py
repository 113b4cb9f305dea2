"""Cost of a live memory budget: microseconds per op without a limit, slowdown under limits.

    python benchmarks/run_overhead.py [--write] [--rounds ROUNDS] [WORKLOAD ...]

Ordinary steps, steps under an empty dispatch mode and steps under a budget, with and without its compiled core, take
turns; figures without a limit are of
the shortest steps (other work on the machine only adds), slowdowns under one are medians of ratios; processor time on
one thread. An op is one that is dispatched, views included. Shares are of what the step needs beyond what was there
before it; in brackets, ops recomputed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import harness
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run.budget import Budget
from tensortide.run.core.build import library

WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18-narrow": ("resnet18_cifar", {"batch": 4, "width": 16}),
    "gpt2-short": (
        "gpt2",
        {"batch": 2, "seq": 64, "hidden": 64, "layers": 4, "heads": 4, "vocab": 512, "positions": 64},
    ),
    "resnet18": ("resnet18_cifar", {"batch": 8}),
    "gpt2": (
        "gpt2",
        {"batch": 4, "seq": 256, "hidden": 256, "layers": 4, "heads": 4, "vocab": 4096, "positions": 256},
    ),
}
"""Short ops, and long ones."""
SHARES = (0.8, 0.6, 0.4)
UNLIMITED = 1 << 60
COLUMNS = {
    "workload": "{workload}",
    "ops": "{ops:d}",
    "us per op": "{op_us:.1f}",
    "empty mode adds us": "{mode_us:.1f}",
    "budget adds us": "{budget_us:.1f}",
    "without its core": "{python_us:.1f}",
    "without a limit": "{free:.2f}x",
    **{f"{share:.0%}": f"{{time_{share:.0%}:.2f}}x ({{recomputed_{share:.0%}}})" for share in SHARES},
}


class Empty(TorchDispatchMode):
    """Passes every op on."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Under:
    """Steps under a budget, each timed after one that opens it; the last Budget and what was resident before."""

    def __init__(self, step: Callable[[], Any], limit: int, compiled: bool = True) -> None:
        self.step, self.limit, self.compiled, self.seconds = step, limit, compiled, 0.0

    def __call__(self) -> None:
        self.budget = Budget(self.limit, compiled=self.compiled)
        with self.budget:
            self.before = self.budget.resident_bytes
            self.step()
            self.budget.reset()
            self.seconds = harness.seconds(self.step)


def measure(run: harness.Run) -> None:
    torch.set_num_threads(1)
    if (found := library()) is not None:
        found.wait()
    rounds = 1 if run.smallest else run.options.rounds
    table = run.table(COLUMNS, ("workload",))
    for example, settings in run.cases(WORKLOADS).values():
        torch.manual_seed(0)
        step = find(example).load()(**settings)
        step()
        empty, free, python = Empty(), Under(step, UNLIMITED), Under(step, UNLIMITED, compiled=False)
        budgeted: list[float] = []
        in_python: list[float] = []

        def passed() -> None:
            with empty:  # noqa: B023
                step()  # noqa: B023

        plain: list[float] = []
        modes: list[float] = []
        for _ in range(rounds):
            for column, (seconds,) in zip((plain, modes), harness.paired(1, step, passed), strict=True):
                column.append(seconds)
            for column, under in ((budgeted, free), (in_python, python)):
                under()
                column.append(under.seconds)
        base, mode, whole, slow = map(min, (plain, modes, budgeted, in_python))
        ops, peak = free.budget.usage.ops, free.budget.usage.peak_bytes
        row = {"workload": harness.named(example, settings), "ops": ops, "op_us": base / ops * 1e6}
        row |= {"mode_us": (mode - base) / ops * 1e6, "budget_us": (whole - base) / ops * 1e6, "free": whole / base}
        row["python_us"] = (slow - base) / ops * 1e6
        for share in SHARES[:1] if run.smallest else SHARES:
            row |= limited(step, int(free.before + (peak - free.before) * share), max(3, rounds // 5), f"{share:.0%}")
        table.add(row)


def limited(step: Callable[[], Any], limit: int, rounds: int, share: str) -> harness.Row:
    under, ratios = Under(step, limit), []
    try:
        for _ in range(rounds):
            ordinary = harness.seconds(step)
            under()
            ratios.append(under.seconds / ordinary)
    except BudgetInfeasible:
        return {}
    return {f"time_{share}": statistics.median(ratios), f"recomputed_{share}": under.budget.usage.recomputations}


if __name__ == "__main__":
    harness.main(__doc__, measure, rounds={"type": int, "default": 5, "help": "turns of each"})
