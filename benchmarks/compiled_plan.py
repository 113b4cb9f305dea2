"""Plans as generated programs: measured peak beside the planned one, time per op beside eager steps and a live budget.

    python benchmarks/compiled_plan.py [--write] [--rounds ROUNDS] [WORKLOAD ...]

Forward and backward pass of small models by `torch.compile` with `tensortide.aot_backend`. Steps take turns: eager
ones, those of the backend without a limit, of PyTorch's own `aot_eager`, under a live budget without a limit, and of
both at a share of what the step needs beyond what it is given. Figures without a limit are of the shortest steps,
processor time on one thread; under one, medians of ratios to the eager step before. An op is one that makes or writes
memory. Peaks are of PyTorch's allocator, beyond what was there; *equal* compares gradients bit for bit with those of
eager steps.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from typing import Any

import harness
import torch

from tensortide.errors import BudgetInfeasible
from tensortide.plans import Compute
from tensortide.run.budget import Budget
from tensortide.run.core.build import library
from tensortide.run.generated.aot import Backend
from tensortide.studies.compiled import aot_backend
from tests.run.generated.models import Deep, Gpt, Made, Recurrent, Residual, allocated_peak, trained
from tests.run.same import identical

WORKLOADS: dict[str, tuple[Callable[[], Made], float]] = {
    "mlp": (lambda: (Deep(24, 64), [torch.randn(512, 64)]), 0.5),
    "resnet": (lambda: (Residual(16, 8), [torch.randn(8, 3, 32, 32)]), 0.7),
    "gpt2": (lambda: (Gpt(128, 4, 1024, 128), [torch.randint(0, 1024, (4, 128))]), 0.6),
    "gpt2-short": (lambda: (Gpt(64, 4, 512, 32), [torch.randint(0, 512, (2, 32))]), 0.8),
    "lstm": (lambda: (Recurrent(64), [torch.randn(20, 32, 64)]), 0.5),
}
"""Models, and the share of what each needs at which it is limited."""
SMALLEST: dict[str, tuple[Callable[[], Made], float]] = {"mlp": (lambda: (Deep(4, 8), [torch.randn(64, 8)]), 0.7)}
UNLIMITED = 1 << 50
COLUMNS = {
    "workload": "{workload}",
    "ops": "{ops:d}",
    "eager us per op": "{op_us:.1f}",
    "program adds us": "{program_us:+.1f}",
    "aot_eager adds us": "{aot_us:+.1f}",
    "live budget adds us": "{live_us:+.1f}",
    "at": "{share:.0%}",
    "planned KiB": "{planned_kib:.1f}",
    "measured KiB": "{measured_kib:.1f}",
    "recomputed": "{recomputed:d}",
    "planned time": "{planned_time:.2f}x",
    "time": "{limited_time:.2f}x",
    "live time": "{live_time:.2f}x",
    "equal": "{equal}",
}


def measure(run: harness.Run) -> None:
    torch.set_num_threads(1)
    if (found := library()) is not None:
        found.wait()
    rounds = 2 if run.smallest else run.options.rounds
    table = run.table(COLUMNS, ("workload",))
    for name, (build, share) in run.cases(SMALLEST if run.smallest else WORKLOADS).items():
        table.add({"workload": name, "share": share, **case(build, share, rounds)})


def case(build: Callable[[], Made], share: float, rounds: int) -> harness.Row:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = build()

    def stepping(function: Any) -> Callable[[], None]:
        def step() -> None:
            model.zero_grad()
            function(*inputs).backward()

        return step

    free = aot_backend(UNLIMITED)
    eager = stepping(model)
    program = stepping(torch.compile(model, backend=free, fullgraph=True))
    program()
    (graph,) = free.graphs
    budget = int(graph.given_bytes + share * (graph.peak_bytes - graph.given_bytes))
    tight = aot_backend(budget, effort=2)
    function = torch.compile(model, backend=tight, fullgraph=True)
    limited = stepping(function)
    plain = stepping(torch.compile(model, backend="aot_eager", fullgraph=True))
    for step in (limited, plain):
        step()
    ops = sum(not view.is_view for view in graph.graph)
    base, ours, aot, live = free_times(rounds, eager, program, plain)
    row = {"ops": ops, "op_us": base / ops * 1e6}
    row |= {"program_us": (ours - base) / ops * 1e6, "aot_us": (aot - base) / ops * 1e6}
    row |= {"live_us": (live - base) / ops * 1e6}
    return row | limits(rounds, eager, limited, tight, budget) | results(model, function, inputs, tight)


def free_times(rounds: int, *steps: Callable[[], None]) -> list[float]:
    """Seconds of the shortest of each step, and of the first one under a live budget."""
    columns: list[list[float]] = [[] for _ in range(len(steps) + 1)]
    for _ in range(rounds):
        for column, (seconds,) in zip(columns, harness.paired(1, *steps), strict=False):
            column.append(seconds)
        columns[-1].append(under(UNLIMITED, steps[0]))
    return [min(column) for column in columns]


def under(limit: int, step: Callable[[], None]) -> float:
    """Seconds of the second step under a live budget."""
    with Budget(limit):
        step()
        return harness.seconds(step)


def limits(
    rounds: int, eager: Callable[[], None], limited: Callable[[], None], tight: Backend, budget: int
) -> harness.Row:
    """Times at the budget by ordinary ones; the live budget gets what lies outside of the step on top."""
    (graph,) = tight.graphs
    gc.collect()
    with Budget(UNLIMITED) as probe:
        outside = probe.resident_bytes - graph.given_bytes
    ratios: list[tuple[float, float]] = []
    live: float | None = 0.0
    for _ in range(max(3, rounds // 3)):
        base, seconds = (column[0] for column in harness.paired(1, eager, limited))
        try:
            live = None if live is None else under(outside + budget, eager)
        except BudgetInfeasible:
            live = None
        ratios.append((seconds / base, (live or 0.0) / base))
    row: harness.Row = {"limited_time": statistics.median(ratio for ratio, _ in ratios)}
    planned = graph.planned
    row["planned_time"] = (planned.step_ns or 0) / planned.base_ns
    assert planned.plan is not None
    runs = [step for step in planned.plan.lanes[0].steps if isinstance(step, Compute)]
    row["recomputed"] = len(runs) - len(graph.graph)
    return row if live is None else row | {"live_time": statistics.median(ratio for _, ratio in ratios)}


def results(model: Any, function: Any, inputs: Any, tight: Backend) -> harness.Row:
    """Peaks of the limited step, and whether its results are those of an eager one."""
    (graph,) = tight.graphs
    wanted, found = trained(model, model, inputs), trained(model, function, inputs)
    buffers = len([*model.buffers()])  # they have gone on
    pairs = zip(wanted[: -1 - buffers], found[: -1 - buffers], strict=True)
    model.zero_grad()
    measured = allocated_peak(lambda: function(*inputs).backward())
    return {
        "planned_kib": (graph.peak_bytes - graph.given_bytes) / 1024,
        "measured_kib": measured / 1024,
        "equal": "yes" if all(identical(*pair) for pair in pairs) else "no",
    }


if __name__ == "__main__":
    harness.main(__doc__, measure, rounds={"type": int, "default": 15, "help": "turns of each"})
