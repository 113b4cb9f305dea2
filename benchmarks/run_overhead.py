"""What a memory budget adds to a training step: microseconds per op without a limit, slowdown under limits.

python benchmarks/run_overhead.py [--write] [ROUNDS]

Ordinary steps, steps under an empty dispatch mode and steps under a budget take turns; figures without a limit are of
the shortest steps (other work on the machine only adds), slowdowns under one are medians of ratios; processor time on
one thread. An op is one that is dispatched, views included. Shares are of what the step needs beyond what was there
before it.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run.budget import Budget

WORKLOADS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"batch": 2, "seq": 64, "hidden": 64, "layers": 4, "heads": 4, "vocab": 512, "positions": 64}),
    ("resnet18_cifar", {"batch": 4, "width": 16}),
    ("resnet18_cifar", {"batch": 8}),
    ("gpt2", {"batch": 4, "seq": 256, "hidden": 256, "layers": 4, "heads": 4, "vocab": 4096, "positions": 256}),
]
"""Short ops, and long ones."""
SHARES = (0.8, 0.6, 0.4)
UNLIMITED = 1 << 60
RESULT = Path(__file__).with_name("results") / "run_overhead.md"
COLUMNS = (
    *("workload", "ops", "us per op", "empty mode adds us", "budget adds us", "without a limit"),
    *(f"{share:.0%}: time (ops again)" for share in SHARES),
)


class Empty(TorchDispatchMode):
    """Passes every op on."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def seconds(step: Callable[[], Any]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def under(step: Callable[[], Any], limit: int) -> tuple[float, Budget, int]:
    """One step under a budget that was open for another before."""
    budget = Budget(limit)
    with budget:
        before = budget.resident_bytes
        step()
        budget.reset()
        return seconds(step), budget, before


def limited(step: Callable[[], Any], limit: int, rounds: int) -> str:
    ratios = []
    try:
        for _ in range(rounds):
            ordinary = seconds(step)
            taken, budget, _ = under(step, limit)
            ratios.append(taken / ordinary)
    except BudgetInfeasible:
        return "does not fit"
    return f"{statistics.median(ratios):.2f}x ({budget.usage.recomputations})"


def row(name: str, settings: dict[str, Any], rounds: int) -> Iterator[str]:
    """The cells of a workload."""
    torch.manual_seed(0)
    step = find(name).load()(**settings)
    step()
    plain, empty, free = [], [], []
    for _ in range(rounds):
        plain.append(seconds(step))
        with Empty():
            empty.append(seconds(step))
        taken, budget, before = under(step, UNLIMITED)
        free.append(taken)
    ops, peak = budget.usage.ops, budget.usage.peak_bytes
    base, mode, whole = map(min, (plain, empty, free))
    yield f"{name} {' '.join(f'{key}={value}' for key, value in settings.items())}"
    yield str(ops)
    yield from (f"{us / ops * 1e6:.1f}" for us in (base, mode - base, whole - base))
    yield f"{whole / base:.2f}x"
    for share in SHARES:
        yield limited(step, int(before + (peak - before) * share), max(3, rounds // 5))


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    rounds = next((int(given) for given in arguments if given.isdigit()), 5)
    lines = [
        "# What a memory budget adds to a step",
        "",
        " ".join((__doc__ or "").split("\n\n")[2].split()),
        "",
        f"PyTorch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, one thread.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|" + "---:|" * (len(COLUMNS) - 1),
    ]
    print("\n".join(lines[-2:]))
    for name, settings in WORKLOADS:
        lines.append(f"| {' | '.join(row(name, settings, rounds))} |")
        print(lines[-1], flush=True)
    if "--write" in arguments:
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
