"""Durations of a step on an accelerator: the device's own record of its kernels, by way of the profiler."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tensortide.graph.model import Graph
from tensortide.profile.host import accelerators, machine_of, source_of
from tensortide.recorder.fallback import fallback
from tensortide.timing import Durations
from tensortide.timing.durations import sample
from tensortide.timing.kineto import Trace, read_trace
from tensortide.timing.traced import from_trace


def measure_kernels(
    graph: Graph,
    step: Callable[[], None],
    repeats: int,
    *,
    warm_up: int,
    steady: bool,
    progress: Callable[[str], None],
) -> Durations:
    """Durations of ``graph``'s ops from ``repeats`` steps under the profiler, between as many ordinary ones.

    ``step`` runs one and waits for the device. Kernels launched by an op are its time, from the start of the first to
    the end of the last. The rest of an ordinary step, in which the device waits for the host, is in no op.
    """
    machine = machine_of(accelerators(graph))
    progress("measuring ordinary steps")
    ordinary = [_wall_ns(step) for _ in range(repeats)]
    progress("measuring kernels")
    trace = profiled(step, repeats, devices=bool(accelerators(graph)))
    progress("measuring ordinary steps")
    ordinary += [_wall_ns(step) for _ in range(repeats)]
    durations = from_trace(graph, trace, resolver=fallback)
    assert durations.measurement is not None
    found = msgspec.structs.replace(
        durations.measurement,
        how="step",
        machine=machine_of(accelerators(graph), before=machine),
        step=sample(ordinary),
        hooked=durations.measurement.step,
        warm_up=warm_up,
        steady=steady,
    )
    source = source_of(found, ", kernel times", repeats, durations.ns)
    return msgspec.structs.replace(durations, kind="measured", source=source, measurement=found)


def profiled(step: Callable[[], None], repeats: int, *, devices: bool) -> Trace:
    """The trace of ``repeats`` steps, each marked as the profiler's own schedule marks it."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if devices and torch.cuda.is_available() else [])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=activities, record_shapes=True) as profiler:
            for number in range(repeats):
                with record_function(f"ProfilerStep#{number}"):
                    step()
        profiler.export_chrome_trace(str(path))
        return msgspec.structs.replace(read_trace(path), path="the profiler's trace")


def _wall_ns(step: Callable[[], None]) -> int:
    begin = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - begin
