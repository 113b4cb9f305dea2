"""Slowdown against memory of one training step: a live budget, checkpointing by hand, and AOTAutograd's memory budget.

python benchmarks/budget_tradeoff.py [--write] [WORKLOAD ...]

All contenders run in one process on one thread, and are measured alike: processor time of a step (the least of some)
against that of ordinary steps taken just before, and in one more step the most bytes that PyTorch's allocator had
handed out at once beyond what was there before the step, from the allocator's own record (torch.profiler), which none
of them takes part in. Shares are of that figure of the ordinary step. AOTAutograd's budget is known to give wrong
gradients with dropout; it is here for time and memory.
"""

from __future__ import annotations

import functools
import gc
import inspect
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run.budget import Budget

MIB = 1 << 20
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
COMPILED = (0.7, 0.3)
TIMED = 3
TOO_SLOW = 20
"""Times an ordinary step: what is slower is not tried at still smaller budgets."""
WORKLOADS: dict[str, dict[str, Any]] = {
    "gpt2": {"batch": 8, "seq": 256, "hidden": 256, "layers": 9, "heads": 4, "vocab": 512, "positions": 256},
    "resnet32_cifar": {"batch": 32},
    "unet": {"batch": 4, "height": 96, "width": 96, "filters": 16, "levels": 3},
    "lstm": {"batch": 128, "seq": 24, "inputs": 128, "hidden": 256, "layers": 2},
    "treelstm": {"batch": 64, "depth": 4, "hidden": 256, "vocab": 512},
}
RESULTS = Path(__file__).parent / "results"
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "budget_tradeoff.png"

MARKERS = {
    "no budget": "k*",
    "tensortide dtr-eq": "o-",
    "checkpoint every block": "s",
    "checkpoint every sqrt(n) blocks": "D",
    "AOTAutograd budget": "^",
}

Step = Callable[[], Any]
Row = tuple[str, float, float]
"""Contender, memory as a share of an ordinary step's, time likewise."""


def models(step: Step) -> list[nn.Module]:
    inner = inspect.getclosurevars(inspect.unwrap(step)).nonlocals.values()
    nested = [model for value in inner if inspect.isfunction(value) for model in models(value)]
    return [value for value in inner if isinstance(value, nn.Module)] + nested


def timed(step: Step) -> float:
    """Seconds of the quickest of some steps, after one that does not count."""
    seconds = []
    for _ in range(1 + TIMED):
        began = time.process_time()
        step()
        seconds.append(time.process_time() - began)
    return min(seconds[1:])


def measured(step: Step) -> tuple[float, int]:
    """Seconds, and bytes at the peak beyond what was there."""
    seconds = timed(step)
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        step()
    assert trace.profiler is not None
    now = peak = 0
    for event in trace.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return seconds, peak


def blocks(model: nn.Module) -> list[nn.Module]:
    """What people would checkpoint: the outermost modules of a kind of which there are several, in order."""
    return [m for m in model.modules() if type(m).__name__ in {"Block", "BasicBlock", "DoubleConv"}]


def checkpointed(model: nn.Module) -> bool:
    found = blocks(model)
    for block in found:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[assignment]
    return bool(found)


class Segment(nn.Sequential):
    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(super().forward, x, use_reentrant=False)


def by_root(model: nn.Module) -> bool:
    """Segments of sqrt(n) blocks, where blocks are one chain."""
    name = next((name for name in ("blocks", "groups") if hasattr(model, name)), None)
    if name is None:
        return False
    chain = blocks(model)
    size = round(math.sqrt(len(chain)))
    setattr(model, name, nn.Sequential(*(Segment(*chain[i : i + size]) for i in range(0, len(chain), size))))
    return True


def compiled(share: float, model: nn.Module) -> bool:
    import torch._functorch.config as config

    torch._dynamo.reset()
    config.activation_memory_budget = share
    model.forward = torch.compile(model.forward, backend="aot_eager_decomp_partition")  # type: ignore[method-assign]
    return True


def rows(name: str) -> list[Row]:
    def build() -> Step:
        gc.collect()
        torch.manual_seed(0)
        step: Step = find(name).load()(**WORKLOADS[name])
        return step

    plain = step = build()
    base_s, base_bytes = measured(step)
    found: list[Row] = [("no budget", 1.0, 1.0)]
    print(f"{name}: {base_s * 1e3:.0f} ms, {base_bytes / MIB:.0f} MiB", flush=True)
    with Budget(1 << 60) as probe:
        before = probe.resident_bytes
    for share in SHARES:
        base_s = timed(plain)
        try:
            with Budget(before + int(base_bytes * share)) as budget:
                seconds, peak = measured(step)
            found.append(("tensortide dtr-eq", peak / base_bytes, seconds / base_s))
            print("  ours", share, found[-1], budget.usage.recomputations, flush=True)
        except BudgetInfeasible as error:
            print(f"  ours {share}: {str(error).splitlines()[0]}", flush=True)
            break
        if seconds > TOO_SLOW * base_s:
            break
    tricks: list[tuple[str, Callable[[nn.Module], bool]]] = [
        ("checkpoint every block", checkpointed),
        ("checkpoint every sqrt(n) blocks", by_root),
        *((f"AOTAutograd budget {share}", functools.partial(compiled, share)) for share in COMPILED),
    ]
    for trick, apply in tricks:
        step = build()
        if not all(apply(model) for model in models(step)[:1]):
            found.append((trick, math.nan, math.nan))
            continue
        base_s = timed(plain)
        seconds, peak = measured(step)
        found.append((trick, peak / base_bytes, seconds / base_s))
        print(" ", *found[-1], flush=True)
    return found


def drawn(all_rows: dict[str, list[Row]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(all_rows), figsize=(3.2 * len(all_rows), 3), squeeze=False)
    for axis, (name, found) in zip(axes[0], all_rows.items(), strict=True):
        for kind, marker in MARKERS.items():
            points = [(memory, slow) for who, memory, slow in found if who.startswith(kind) and not math.isnan(memory)]
            if points:
                axis.plot(*zip(*points, strict=True), marker, markersize=5, label=kind)
        axis.set(title=name, xlabel="memory of the step (share of plain)", xlim=(0, 1.15))
        axis.set_yscale("log")
        axis.set_yticks([1, 1.5, 2, 3, 5, 10, 20], ["1", "1.5", "2", "3", "5", "10", "20"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("time of the step (times plain)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=5, fontsize=8)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGE, dpi=70)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    chosen = [name for name in WORKLOADS if name in arguments] or list(WORKLOADS)
    all_rows = {name: rows(name) for name in chosen}
    lines = ["# Time and memory of a training step", "", (__doc__ or "").split("\n\n")[2].replace("\n", " "), ""]
    lines += ["| workload | contender | memory | time |", "|---|---|---:|---:|"]
    for name, found in all_rows.items():
        for who, memory, slowdown in found:
            figures = "does not apply | " if math.isnan(memory) else f"{memory:.2f} | {slowdown:.2f}"
            lines.append(f"| {name} | {who} | {figures} |")
    print("\n".join(lines))
    if "--write" in arguments:
        (RESULTS / "budget_tradeoff.md").write_text("\n".join(lines) + "\n")
        drawn(all_rows)


if __name__ == "__main__":
    main(sys.argv[1:])
