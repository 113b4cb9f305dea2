"""Predicted against real peak memory of training steps: real ones on CPU, watched by PyTorch's own memory profiler.

    python benchmarks/memory_peak.py [--quick] [--more] [--write]

Each case runs in a process of its own: it builds the workload for real with the profiler on from the start, runs two
steps, and follows every allocation and release of PyTorch's CPU allocator; the figure is the most bytes held during
the second step. Then it captures the same workload on fake tensors, where nothing is allocated, and predicts that
figure. Nothing is shared between the two but the workload. ``--more`` adds models beyond the twelve cases that the
one-per-cent target is about; ``--write`` stores the tables in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
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
QUICK: dict[str, Settings] = {
    "resnet": {"batch": 4, "image": 96},
    "gpt2": {"seq": 64, "layers": 2},
    "bert": {"batch": 2, "layers": 2},
    "lstm": {"batch": 8, "seq": 20},
    "unet": {"height": 64, "width": 64},
    "vit": {"batch": 2, "layers": 2},
}
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
        "after": line.at_end,
        "peak_without_workspace": timeline(graph, workspace=False).peak_bytes,
        "peak_at": f"{at.name.split('.')[1]} ({at.phase})",
        "ops": len(graph),
        "capture_s": captured - began,
        "timeline_s": time.perf_counter() - captured,
    }


def one(name: str, settings: Settings) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "settings": settings, **real(name, settings), **predicted(name, settings)}
    row["ratio"] = row["peak"] / row["real_peak"]
    return row


def in_own_process(name: str, settings: Settings) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", json.dumps([name, settings])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} {settings} failed:\n{done.stderr}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def machine() -> dict[str, str]:
    """What the figures were measured on, in general terms."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "cpu": f"{model}, {capability}, {os.cpu_count()} cores",
        "pytorch": torch.__version__,
        "python": platform.python_version(),
    }


COLUMNS = (
    *("model", "settings", "real peak MiB", "predicted MiB", "ratio", "ratio without workspace"),
    *("peak at", "ops", "real step s", "capture s"),
)
HEADER = f"| {' | '.join(COLUMNS)} |\n|---|---|---:|---:|---:|---:|---|---:|---:|---:|"


def as_row(row: dict[str, Any]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
    plain = row["peak_without_workspace"] / row["real_peak"]
    return (
        f"| {row['model']} | {settings} | {row['real_peak'] / 2**20:.2f} | {row['peak'] / 2**20:.2f} "
        f"| {row['ratio']:.5f} | {plain:.4f} | {row['peak_at']} | {row['ops']} | {row['real_step_s']:.2f} "
        f"| {row['capture_s']:.2f} |"
    )


def write(rows: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
    where = machine()
    stored = {"machine": where, "cases": rows, "more": more}
    (RESULTS / "memory_peak.json").write_text(json.dumps(stored, indent=1) + "\n")
    worst = max(abs(row["ratio"] - 1) for row in rows)
    text = [
        "# Predicted and real peak memory of training steps",
        "",
        "`python benchmarks/memory_peak.py --more --write`. Real: most bytes held by PyTorch's CPU allocator during",
        "the second step, by its own memory profiler. Predicted: capture on fake tensors, nothing allocated.",
        "*Ratio without workspace* leaves out what kernels take inside one op (`docs/memory.md`).",
        "",
        f"{where['cpu']}; PyTorch {where['pytorch']}, Python {where['python']}.",
        f"Largest deviation of the twelve: {worst:.4%}.",
        "",
        HEADER,
        *map(as_row, rows),
    ]
    if more:
        text += ["", "## Other models", "", HEADER, *map(as_row, more)]
    (RESULTS / "memory_peak.md").write_text("\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--more", action="store_true", help="other models too")
    parser.add_argument("--write", action="store_true", help="store the tables in benchmarks/results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*json.loads(arguments.one))))
        return
    print(HEADER)
    tables: list[list[dict[str, Any]]] = []
    for cases in (CASES, MORE if arguments.more else []):
        tables.append([])
        for name, settings in cases:
            smaller = QUICK.get(name, {}) if arguments.quick and cases is CASES else {}
            tables[-1].append(in_own_process(name, {**settings, **smaller}))
            print(as_row(tables[-1][-1]), flush=True)
    if arguments.write:
        write(*tables)
    missed = [row["model"] for row in tables[0] if abs(row["ratio"] - 1) > TARGET]
    if missed:
        raise SystemExit(f"more than {TARGET:.0%} off: {', '.join(missed)}")


if __name__ == "__main__":
    main()
