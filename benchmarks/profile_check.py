"""Durations of ops as ``tensortide time --measure`` measures them: beside torch.profiler's, and beside isolated ones.

    python benchmarks/profile_check.py [--write] [--steps N] [MODEL ...]

One thread on a CPU. Per model: how far ops and the work between them explain the ordinary step, by processor time; our
durations by wall time against the profiler's own (self time of a call with that of what it calls), the shortest of
both over all rounds, since others use the machine; and the sum of ops executed in isolation against their sum in the
step. The time-weighted error is the sum of absolute differences over the profiler's sum.
"""

from __future__ import annotations

from typing import Any

import harness
import torch

from tensortide.examples import find
from tensortide.graph import Graph
from tensortide.profile.isolated import measure_isolated
from tensortide.profile.kernels import profiled
from tensortide.profile.measure import measure
from tensortide.recorder.fallback import fallback
from tensortide.timing.traced import from_trace

CASES: dict[str, dict[str, Any]] = {
    "gpt2": {"batch": 2, "seq": 128, "hidden": 256, "layers": 4, "heads": 4, "vocab": 4000, "positions": 128},
    "resnet18_cifar": {"batch": 16, "width": 32},
    "unet": {"batch": 2, "height": 64, "width": 64, "filters": 32, "levels": 3},
    "lstm": {"batch": 16, "seq": 50, "hidden": 256, "inputs": 128},
    "bert": {"batch": 4, "seq": 64, "hidden": 256, "layers": 3, "heads": 4, "vocab": 4000},
}
ROUNDS = 3
SMALLEST = {"mlp": {}}
COLUMNS = {
    "model": "{model}",
    "ops": "{ops:,}",
    "step ms": "{step_ms:.1f}",
    "explained": "{explained:+.1%}",
    "ops of step": "{of_step:.1%}",
    "hook of step": "{hook:.1%}",
    "error against profiler": "{error:.1%}",
    "ratio of sums": "{ratio:.3f}",
    "ops found": "{found:,}",
    "isolated of in-step": "{isolated:.3f}",
}


def checked(name: str, settings: dict[str, Any], steps: int) -> harness.Row:
    graph, ours = measure(name, hyperparameters=settings, repeats=steps, clock="thread", threads=1)
    isolated = measure_isolated(graph, clock="thread", threads=1)
    assert ours.measurement is not None
    assert ours.measurement.step is not None
    assert ours.measurement.hook_ns is not None
    whole = ours.measurement.step.median_ns
    explained = ours.measurement.explained_ns(ours.ns) / whole
    hook, ops = ours.measurement.hook_ns / whole, sum(ours.ns)
    error, ratio, found = against_profiler(name, settings, graph, steps)
    row = {"model": name, "settings": settings, "ops": len(graph), "step_ms": whole / 1e6, "explained": explained - 1}
    row |= {"of_step": ops / whole, "hook": hook, "error": error, "ratio": ratio, "found": found}
    return {**row, "isolated": sum(isolated.ns) / ops}


def against_profiler(name: str, settings: dict[str, Any], graph: Graph, steps: int) -> tuple[float, float, int]:
    """Time-weighted error and ratio of sums of our times to the profiler's, the shortest of each in all rounds.

    The profiler has wall time only, and others use the machine: the shortest are what they disturb least.
    """
    step = find(name).load()(**settings)
    step()
    ours, theirs = [], []
    for _ in range(ROUNDS):
        found = measure(name, hyperparameters=settings, repeats=steps, threads=1)[1].measurement
        assert found is not None
        ours.append(found.min_ns)
        traced = from_trace(graph, profiled(step, steps, devices=False), resolver=fallback).measurement
        assert traced is not None
        theirs.append([ns if i not in traced.stand_ins else None for i, ns in enumerate(traced.min_ns)])
    pairs = []
    for a, b in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        known = [ns for ns in b if ns is not None]
        if known:
            pairs.append((min(a), min(known)))
    total = sum(b for _, b in pairs)
    return sum(abs(a - b) for a, b in pairs) / total, sum(a for a, _ in pairs) / total, len(pairs)


def measure_all(run: harness.Run) -> None:
    torch.set_num_threads(1)
    table = run.table(COLUMNS, ("model",))
    for name, settings in run.cases(SMALLEST if run.smallest else CASES).items():
        table.add(checked(name, settings, 1 if run.smallest else run.options.steps))


if __name__ == "__main__":
    harness.main(__doc__, measure_all, steps={"type": int, "default": 9, "help": "steps that are timed"})
