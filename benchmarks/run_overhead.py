"""What a memory budget adds to a training step: microseconds per op without a limit, slowdown under limits.

python benchmarks/run_overhead.py [rounds]

Ordinary steps, steps under an empty dispatch mode and steps under a budget take turns; figures per op are of the
shortest steps (other work on the machine only adds), slowdowns are medians of ratios; processor time on one thread. An
op is one that is dispatched, views included.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run.budget import Budget

WORKLOADS: dict[str, dict[str, Any]] = {
    "gpt2": {"batch": 2, "seq": 64, "hidden": 64, "layers": 4, "heads": 4, "vocab": 512, "positions": 64},
    "resnet18_cifar": {"batch": 4, "width": 16},
}
SHARES = (0.8, 0.6, 0.4)
UNLIMITED = 1 << 60


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
    budget = Budget(limit)
    with budget:
        before = budget.resident_bytes
        step()
        return seconds(step), budget, before


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    for name, settings in WORKLOADS.items():
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
        ops, peak = budget.usage.ops / 2, budget.usage.peak_bytes
        base, mode, whole = map(min, (plain, empty, free))
        print(
            f"{name}: {ops:.0f} ops, {base * 1e3:.1f} ms; an empty mode adds {(mode - base) / ops * 1e6:.1f} us per op,"
        )
        print(f"  a budget without a limit {(whole - base) / ops * 1e6:.1f} us: {whole / base:.2f}x")
        for share in SHARES:
            try:
                ratios = []
                for _ in range(rounds):
                    ordinary = seconds(step)
                    taken, budget, _ = under(step, int(before + (peak - before) * share))
                    ratios.append(taken / ordinary)
            except BudgetInfeasible:
                print(f"  {share:.0%} of what the step needs: does not fit")
                continue
            again = budget.usage.recomputations / 2
            print(f"  {share:.0%} of what the step needs: {statistics.median(ratios):.2f}x, {again:.0f} ops again")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
