"""Predicted and real peak memory of training steps.

    python benchmarks/memory_peak.py [--write] [--more] [MODEL ...]

Each case runs in a process of its own: it builds the workload for real with PyTorch's memory profiler on from the
start, runs two steps, and follows every allocation and release of the CPU allocator; the figure is the most bytes held
during the second step. Then it captures the same workload on fake tensors, where nothing is allocated, and predicts
that figure. Nothing is shared between the two but the workload. ``--more`` adds models beyond the twelve cases that the
one-per-cent target is about. *Ratio without workspace* leaves out what kernels take inside one op (``docs/memory.md``).
"""

from __future__ import annotations

import time
from typing import Any

import harness

TARGET = 0.01
Settings = dict[str, Any]
CASES: list[tuple[str, Settings]] = [
    (name, {**settings, "optimizer": optimizer})
    for name, settings in [
        ("resnet", {"depth": 50, "batch": 8, "image": 224}),
        ("gpt2", {"batch": 2, "seq": 256, "layers": 6}),
        ("bert", {"batch": 8, "seq": 128, "layers": 6}),
        ("lstm", {"batch": 32, "seq": 100}),
        ("unet", {"batch": 2, "height": 192, "width": 192}),
        ("vit", {"batch": 8, "layers": 6}),
    ]
    for optimizer in ("sgd", "adamw")
]
SMALLEST: list[tuple[str, Settings]] = [("mlp", {})]
MORE: list[tuple[str, Settings]] = [
    ("densenet", {"batch": 4, "image": 96}),
    ("inception_v3", {"batch": 2}),
    ("mobilenet_v2", {"batch": 8, "image": 128}),
    ("alexnet", {"batch": 8}),
    ("vgg", {"batch": 2, "depth": 11, "image": 128}),
    ("resnet", {"depth": 18, "variant": "cifar", "batch": 2, "image": 64}),
    ("resnet", {"depth": 50, "batch": 1, "image": 64}),
    ("diffusion", {"batch": 4}),
    ("llama", {"batch": 2, "seq": 128, "layers": 4}),
    ("llama", {"batch": 2, "seq": 128, "layers": 4, "dtype": "bfloat16"}),
    ("gpt2", {"batch": 2, "seq": 128, "layers": 2, "attention": "eager", "dropout": 0.1}),
    ("mixtral", {"batch": 2, "seq": 128, "layers": 2}),
    ("transformer", {"batch": 2, "layers": 2}),
    ("gru", {"batch": 8, "seq": 20}),
    ("nmt", {"batch": 8, "hidden": 256, "vocab": 4000}),
    ("word_lm", {"batch": 8, "seq": 10, "hidden": 256}),
    ("char_lm", {"batch": 8, "seq": 10, "hidden": 256, "depth": 3}),
    ("word2vec", {}),
    ("treelstm", {"batch": 4, "depth": 4}),
    ("unrolled_gan", {}),
    ("mlp", {}),
]


def real(name: str, settings: Settings) -> dict[str, Any]:
    """Bytes held before, at the peak of, and after the second real step, as the allocator reports them."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from tensortide.examples import find

    torch.manual_seed(0)
    workload = find(name).load()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step = workload(**settings)
        result = step()
        del result
        with record_function("second step"):
            kept = step()
    events = record.profiler.kineto_results.events()
    del kept
    window = next(e for e in events if e.name() == "second step")
    start, end = window.start_ns(), window.start_ns() + window.duration_ns()
    level = before = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        if event.start_ns() > end:
            break
        level += event.nbytes()
        if event.start_ns() < start:
            before = peak = level
        peak = max(peak, level)
    return {"real_before": before, "real_peak": peak, "real_after": level, "real_step_s": (end - start) / 1e9}


def predicted(name: str, settings: Settings) -> dict[str, Any]:
    """The same figures from a capture on fake tensors."""
    from tensortide import capture, timeline

    began = time.perf_counter()
    graph = capture(name, hyperparameters=settings)
    captured = time.perf_counter()
    line = timeline(graph)
    at = graph[line.peak_op]
    return {
        "before": line.persistent_bytes,
        "peak": line.peak_bytes,
        "after": line.end_bytes,
        "peak_without_workspace": timeline(graph, workspace=False).peak_bytes,
        "peak_at": f"{at.name.split('.')[1]} ({at.phase})",
        "ops": len(graph),
        "capture_s": captured - began,
        "timeline_s": time.perf_counter() - captured,
    }


def both(name: str, settings: Settings) -> harness.Row:
    row = {"model": name, "settings": harness.named("", settings).strip()}
    row |= {**real(name, settings), **predicted(name, settings)}
    figures = {"real_mib": row["real_peak"] / 2**20, "mib": row["peak"] / 2**20}
    plain = row["peak_without_workspace"] / row["real_peak"]
    return {**row, **figures, "ratio": row["peak"] / row["real_peak"], "plain": plain}


COLUMNS = {
    "model": "{model}",
    "settings": "{settings}",
    "real peak MiB": "{real_mib:.2f}",
    "predicted MiB": "{mib:.2f}",
    "ratio": "{ratio:.5f}",
    "ratio without workspace": "{plain:.4f}",
    "peak at": "{peak_at}",
    "ops": "{ops:d}",
    "real step s": "{real_step_s:.2f}",
    "capture s": "{capture_s:.2f}",
}


def measure(run: harness.Run) -> None:
    cases = {"": SMALLEST if run.smallest else CASES, "Other models": MORE if run.options.more else []}
    for title, listed in cases.items():
        if not listed:
            continue
        table = run.table(COLUMNS, ("model", "settings"), title)
        for name, settings in listed:
            if not run.options.names or name in run.options.names:
                table.add(run.child(both, name, settings))
    rows = run.tables[0].rows
    worst = max((abs(row["ratio"] - 1) for row in rows), default=0.0)
    run.note(f"Largest deviation of the {len(rows)}: {worst:.4%}.")
    if worst > TARGET:
        raise SystemExit(f"more than {TARGET:.0%} off")


if __name__ == "__main__":
    harness.main(__doc__, measure, more={"action": "store_true", "help": "other models too"})
