"""Time and memory of a training step: a live budget, checkpointing by hand, and AOTAutograd's memory budget.

    python benchmarks/budget_tradeoff.py [--write] [WORKLOAD ...]

All contenders run in one process on one thread, and are measured alike: processor time of a step (the least of some)
against that of ordinary steps taken just before, and in one more step the most bytes that PyTorch's allocator had
handed out at once beyond what was there before the step, from the allocator's own record (torch.profiler), which none
of them takes part in. Shares are of that figure of the ordinary step. AOTAutograd's budget is known to give wrong
gradients with dropout; it is here for time and memory. An empty cell: the contender does not apply.
"""

from __future__ import annotations

import functools
import gc
import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run.budget import Budget
from tensortide.run.core.build import library

MIB = 1 << 20
SHARES = (0.9, 0.7, 0.5, 0.4, 0.3)
COMPILED = (0.7, 0.3)
TIMED = 3
TOO_SLOW = 20
"""Times an ordinary step: what is slower is not tried at still smaller budgets."""
WORKLOADS: dict[str, dict[str, Any]] = {
    "gpt2": {"batch": 4, "seq": 256, "hidden": 256, "layers": 6, "heads": 4, "vocab": 512, "positions": 256},
    "resnet32_cifar": {"batch": 32},
    "unet": {"batch": 4, "height": 96, "width": 96, "filters": 16, "levels": 3},
    "lstm": {"batch": 128, "seq": 24, "inputs": 128, "hidden": 256, "layers": 2},
    "treelstm": {"batch": 64, "depth": 4, "hidden": 256, "vocab": 512},
    "mamba": {"batch": 4, "seq": 48, "hidden": 128, "layers": 2, "vocab": 1000},
}
SMALLEST = {"gpt2": {"batch": 2, "seq": 16, "hidden": 16, "layers": 2, "heads": 2, "vocab": 32, "positions": 16}}
COLUMNS = {"workload": "{workload}", "contender": "{contender}", "memory": "{memory:.2f}", "time": "{time:.2f}"}
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "budget_tradeoff.png"

MARKERS = {
    "no budget": "*",
    "tensortide dtr-eq": "o-",
    "checkpoint every block": "s",
    "checkpoint every sqrt(n) blocks": "D",
    "AOTAutograd budget": "^",
}

Step = Callable[[], Any]


def mamba(batch: int, seq: int, hidden: int, layers: int, vocab: int) -> Step:
    """A step of transformers' Mamba, whose scan is a loop over the sequence in plain ops."""
    import transformers

    config = transformers.MambaConfig(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, state_size=8)
    model = transformers.MambaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    tokens = torch.randint(5, vocab, (batch, seq))

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def models(step: Step) -> list[nn.Module]:
    inner = inspect.getclosurevars(inspect.unwrap(step)).nonlocals.values()
    nested = [model for value in inner if inspect.isfunction(value) for model in models(value)]
    return [value for value in inner if isinstance(value, nn.Module)] + nested


def timed(step: Step) -> float:
    """Seconds of the quickest of some steps, after one that does not count."""
    return min(harness.paired(1 + TIMED, step)[0][1:])


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
    return [m for m in model.modules() if type(m).__name__ in {"Block", "BasicBlock", "DoubleConv", "MambaBlock"}]


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


def contenders(name: str, settings: dict[str, Any], smallest: bool) -> Iterator[harness.Row]:
    """Each with its memory and time as shares of those of an ordinary step."""

    def build() -> Step:
        gc.collect()
        torch.manual_seed(0)
        step: Step = mamba(**settings) if name == "mamba" else find(name).load()(**settings)
        return step

    plain = build()
    base_s, base_bytes = measured(plain)
    yield {"contender": "no budget", "memory": 1.0, "time": 1.0, "seconds": base_s, "nbytes": base_bytes}
    with Budget(1 << 60) as probe:
        before = probe.resident_bytes
    for share in SHARES[:1] if smallest else SHARES:
        base_s = timed(plain)
        try:
            with Budget(before + int(base_bytes * share)) as budget:
                seconds, peak = measured(plain)
        except BudgetInfeasible as error:
            print(f"  at {share}: {str(error).splitlines()[0]}", flush=True)
            break
        found = {"contender": "tensortide dtr-eq", "share": share, "recomputed": budget.usage.recomputations}
        yield {**found, "memory": peak / base_bytes, "time": seconds / base_s}
        if seconds > TOO_SLOW * base_s:
            break
    tricks: list[tuple[str, Callable[[nn.Module], bool]]] = [
        ("checkpoint every block", checkpointed),
        ("checkpoint every sqrt(n) blocks", by_root),
        *((f"AOTAutograd budget {share}", functools.partial(compiled, share)) for share in COMPILED if not smallest),
    ]
    for trick, apply in tricks:
        step = build()
        if not all(apply(model) for model in models(step)[:1]):
            yield {"contender": trick}
            continue
        base_s = timed(plain)
        seconds, peak = measured(step)
        yield {"contender": trick, "memory": peak / base_bytes, "time": seconds / base_s}


def drawn(rows: list[harness.Row]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["workload"] for row in rows))
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        found = [row for row in rows if row["workload"] == name and "memory" in row]
        for number, (kind, marker) in enumerate(MARKERS.items()):
            points = [(row["memory"], row["time"]) for row in found if row["contender"].startswith(kind)]
            if points:
                axis.plot(*zip(*points, strict=True), marker, markersize=5, label=kind, color=f"C{number}")
        axis.set(title=name, xlabel="memory of the step (share of plain)", xlim=(0, 1.25))
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


def measure(run: harness.Run) -> None:
    torch.set_num_threads(1)
    if (found := library()) is not None:
        found.wait()
    table = run.table(COLUMNS, ("workload", "contender", "share"))
    for name, settings in run.cases(SMALLEST if run.smallest else WORKLOADS).items():
        for row in contenders(name, settings, run.smallest):
            table.add({"workload": name, **row})
    if run.options.write:
        drawn(table.rows)


if __name__ == "__main__":
    harness.main(__doc__, measure)
