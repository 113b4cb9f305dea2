"""The peak that a live budget prints, and memory as it is seen from outside of the process.

    python benchmarks/budget_outside.py [--write] [WORKLOAD ...]

Each case is a process of its own. After two ordinary steps, of which the second gives the step's own peak, two steps
run under a budget of what is there and a share of that peak. *Printed* is ``usage.peak_bytes`` less what was there,
*pages* the most resident pages of the whole process (``VmHWM``) beyond those before the budget was opened: tensors,
free memory that is not given back, bookkeeping, other libraries' buffers and scratch of all threads. With *heap alone*
tensors have memory of the C library, as they do without the compiled core; *heap* is the most bytes that it has handed
out at once, counted by a library that is loaded before it. *Time* is that of a step with own pages by that with the
heap alone: medians of processor time, steps of both taking turns in one process. An empty cell: no budget as small
suffices, or it takes too long. It needs Linux with glibc, and a C compiler.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import sys
from collections.abc import Callable
from typing import Any

import harness
import torch
from torch import nn
from torch.nn import functional as F

from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run.budget import Budget
from tensortide.run.core.build import library
from tests.run.outside import Heap, Pages, watching

MIB = 1 << 20
SHARES = (0.5, 0.3, 0.8)
THREADS = (1, 2)
STEPS = 2
TIMEOUT_S = 400
ROUNDS = 3
SMALL: dict[str, Any] = {"hidden": 256, "layers": 4, "heads": 4}
WORKLOADS: dict[str, dict[str, Any]] = {
    "convnext": {"batch": 32},
    "resnet": {"depth": 50, "batch": 6, "image": 160},
    "gpt2": {**SMALL, "batch": 6, "seq": 256, "vocab": 512, "positions": 256, "dropout": 0.1, "attention": "eager"},
    "unet": {"batch": 14, "height": 128, "width": 128, "filters": 16, "levels": 4},
    "lstm": {"batch": 160, "seq": 48, "inputs": 128, "hidden": 256, "layers": 2},
    "vit": {**SMALL, "batch": 8},
    "mobilenet_v2": {"batch": 12, "image": 128},
    "mamba": {"batch": 256},
    "bert": {**SMALL, "batch": 14, "seq": 128},
}
COLUMNS = {
    "workload": "{workload}",
    "threads": "{threads:d}",
    "share": "{share:.1f}",
    "own peak MiB": "{own_mib:.0f}",
    "printed MiB": "{printed_mib:.1f}",
    "pages / printed": "{pages:.3f}",
    "heap alone: pages / printed": "{alone:.2f}",
    "heap / printed": "{heap:.3f}",
    "time": "{time:.3f}",
    "recomputed ops": "{recomputed:d}",
}
Step = Callable[[], Any]


class Block(nn.Module):
    """A block of ConvNeXt: depthwise 7x7, then a perceptron over channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.inside = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inside(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        return x + made.permute(0, 3, 1, 2)


def convnext(batch: int, image: int = 96, width: int = 64) -> Step:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4)]
    for stage in range(3):
        layers += [nn.Conv2d(width // 2, width, 2, 2)] if stage else []
        layers += [Block(width) for _ in range(3)]
        width *= 2
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width // 2, 100))
    return trainer(model, torch.randn(batch, 3, image, image), torch.randint(0, 100, (batch,)))


class Mamba(nn.Module):
    """A selective state space, step by step over the sequence."""

    def __init__(self, width: int, states: int = 8) -> None:
        super().__init__()
        self.states, self.norm = states, nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.mix = nn.Conv1d(2 * width, 2 * width, 4, groups=2 * width, padding=3)
        self.select = nn.Linear(2 * width, 2 * states + 1)
        self.decay = nn.Parameter(-torch.rand(2 * width, states))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.into(self.norm(x)).chunk(2, -1)
        u = F.silu(self.mix(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        time, write, read = self.select(u).split([1, self.states, self.states], -1)
        time, state, made = F.softplus(time), u.new_zeros(*u[:, 0].shape, self.states), []
        for t in range(x.shape[1]):
            state = torch.exp(time[:, t, :, None] * self.decay) * state
            state = state + time[:, t, :, None] * write[:, t, None, :] * u[:, t, :, None]
            made.append((state * read[:, t, None, :]).sum(-1))
        found: torch.Tensor = x + self.out(torch.stack(made, 1) * F.silu(gate))
        return found


def mamba(batch: int, seq: int = 24, width: int = 128, layers: int = 2) -> Step:
    blocks = [Mamba(width) for _ in range(layers)]
    model = nn.Sequential(nn.Embedding(256, width), *blocks, nn.Linear(width, 256), nn.Flatten(0, 1))
    tokens = torch.randint(0, 256, (batch, seq + 1))
    return trainer(model, tokens[:, :-1], tokens[:, 1:].flatten())


def trainer(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> float:
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


OWN: dict[str, Callable[..., Step]] = {"convnext": convnext, "mamba": mamba}


def probe(name: str, settings: dict[str, Any], share: float, threads: int, own: bool, rounds: int) -> dict[str, Any]:
    """Peaks of steps under a budget, in bytes beyond what is there before it is opened, with ``own`` pages or the heap
    alone; then the time of steps with own pages by that with the heap alone, of ``rounds`` of both."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    core = _core()
    build: Callable[..., Step] = OWN[name] if name in OWN else find(name).load()
    step = build(**settings)
    step()
    gc.collect()
    with Budget(1 << 60) as free:
        there = free.resident_bytes
        step()
    peak = free.usage.peak_bytes - there
    gc.collect()
    heap, pages = Heap() if Heap.counted() else None, Pages()
    had, before = pages.reset(), heap.reset() if heap is not None else 0
    try:
        with Budget(there + int(peak * share)) as budget:
            core.own_pages(own)
            for _ in range(STEPS):
                step()
            most, handed = pages.peak - had, heap.peak - before if heap is not None else 0
            usage = budget.usage
            found = {"own": peak, "printed": usage.peak_bytes - there, "pages": most, "heap": handed}
            found["recomputed"] = usage.recomputations // STEPS
            if rounds:
                found["time"] = _time(core, step, rounds)
    except BudgetInfeasible:
        return {"own": peak}
    return found


def _time(core: Any, step: Step, rounds: int) -> float:
    """Time of a step with own pages by that with the heap alone."""

    def ready(own: bool) -> float:
        core.own_pages(own)
        step()
        return harness.seconds(step)

    pairs = [[ready(own) for own in (True, False)] for _ in range(rounds)]
    own, alone = (statistics.median(column) for column in zip(*pairs, strict=True))
    return own / alone


def _core() -> Any:
    found = library()
    core = found.wait() if found is not None else None
    if core is None:
        raise SystemExit("nothing here can build the compiled core")
    return core


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("workload", "threads", "share"))
    small = {"batch": 1} if run.smallest else {}
    cases = {name: {**settings, **small} for name, settings in run.cases(WORKLOADS).items()}
    orders = itertools.product(SHARES[:1] if run.smallest else SHARES, THREADS[:1] if run.smallest else THREADS, cases)
    worst: dict[float, float] = {}
    for share, threads, name in orders:
        try:
            row = _row(run, name, cases[name], share, threads)
        except harness.ChildFailed as failed:
            row = {}
            print(f"  {name} {share} {threads}: {failed}", file=sys.stderr)
        table.add({"workload": name, "threads": threads, "share": share, **row})
        if row.get("own_mib", 0) >= 256:
            worst[share] = max(worst.get(share, 0.0), abs(row.get("pages", 1.0) - 1))
    found = ", ".join(f"{off:.1%} at {share}" for share, off in worst.items())
    run.note(f"Largest difference between printed and pages, of steps from 256 MiB on: {found}.")


def _row(run: harness.Run, name: str, settings: dict[str, Any], share: float, threads: int) -> harness.Row:
    case = (name, settings, share, threads)
    seen = run.child(probe, *case, True, 1 if run.smallest else ROUNDS, timeout_s=TIMEOUT_S)
    row: harness.Row = {"own_mib": seen["own"] / MIB}
    if "printed" not in seen:
        return row
    alone = run.child(probe, *case, False, 0, timeout_s=TIMEOUT_S)
    counted = run.child(probe, *case, False, 0, timeout_s=TIMEOUT_S, **watching())
    return {
        **row,
        "printed_mib": seen["printed"] / MIB,
        "pages": seen["pages"] / seen["printed"],
        "alone": alone["pages"] / alone["printed"],
        "heap": counted["heap"] / counted["printed"],
        "time": seen.get("time"),
        "recomputed": seen["recomputed"],
    }


if __name__ == "__main__":
    harness.main(__doc__, measure)
