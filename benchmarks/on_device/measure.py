"""Steps that PyTorch divides among devices, measured on one of them. Needs PyTorch alone.

    python -m benchmarks.on_device.measure --out FILE [--cpu] [CASE ...]

This process is rank 0 of all that a case asks for (of a pipeline: its first or last). Its process group is fake:
collectives return at once and exchange nothing, so that memory and kernels are those of a rank, and communication takes
no time. For each case the file has, of steps after a warm-up, the most bytes allocated (of a whole step and of each
phase), the time by CUDA events, and the time in which kernels ran. ``--cpu`` runs tiny models in float32; bytes are
then those of PyTorch's CPU allocator.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.on_device.decoders import SHAPES, TINY, Shape
from benchmarks.on_device.divided_steps import MICRO_BATCHES, Case, Step, build, cases, group

WARM, TIMED = 3, 8


def measured(case: Case, shape: Shape, device: str) -> dict[str, Any]:
    with group(case.ranks, case.rank if case.pipeline > 1 else 0):
        on = on_gpu if device == "cuda" else on_cpu
        return on(case, shape)


def on_gpu(case: Case, shape: Shape) -> dict[str, Any]:
    left = torch.cuda.memory_allocated()
    step = build(case, shape, "cuda")
    for _ in range(WARM):
        step(lambda phase: None)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED + 1)]
    began = time.perf_counter()
    ends[0].record()
    for end in ends[1:]:
        step(lambda phase: None)
        end.record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) / TIMED
    times = [start.elapsed_time(end) for start, end in itertools.pairwise(ends)]
    found = {"left_bytes": left, "before_bytes": before, "peak_bytes": torch.cuda.max_memory_allocated()}
    found |= {"reserved_bytes": torch.cuda.max_memory_reserved()}
    found |= {"step_ms": statistics.median(times), "steps_ms": times, "wall_ms": wall * 1e3}
    found["phases"] = phases(step)
    try:
        return found | kernels(step)
    except Exception:  # noqa: BLE001  # the rest is worth keeping
        return found | {"kernels_error": traceback.format_exc()}


def phases(step: Step) -> dict[str, Any]:
    """Milliseconds, and the most bytes allocated, of each phase of a step whose phases wait for each other."""
    found: dict[str, Any] = {}
    began = time.perf_counter()

    def mark(phase: str) -> None:
        nonlocal began
        torch.cuda.synchronize()
        found[phase] = {"ms": (time.perf_counter() - began) * 1e3, "peak_bytes": torch.cuda.max_memory_allocated()}
        found[phase]["after_bytes"] = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()

    torch.cuda.reset_peak_memory_stats()
    step(mark)
    return found


def kernels(step: Step) -> dict[str, Any]:
    """Milliseconds of a step in which a kernel or copy ran, and the kernels that take the most."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as record:
        step(lambda phase: None)
        torch.cuda.synchronize()
    every = record.profiler.kineto_results.events()
    events = [e for e in every if e.device_type() == torch.autograd.DeviceType.CUDA and not e.is_user_annotation()]
    busy = until = 0
    for start, ns in sorted((e.start_ns(), e.duration_ns()) for e in events):
        busy += max(0, start + ns - max(start, until))
        until = max(until, start + ns)
    by_name: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in events:
        by_name[event.name()[:120]] += event.duration_ns()
        times[event.name()[:120]] += 1
    most = [{"name": name, "ms": ns / 1e6, "times": times[name]} for name, ns in by_name.most_common(40)]
    return {"busy_ms": busy / 1e6, "kernel_ms": sum(by_name.values()) / 1e6, "launches": len(events), "kernels": most}


def on_cpu(case: Case, shape: Shape) -> dict[str, Any]:
    """Bytes of the CPU allocator in a step after a warm-up, and the time of another."""
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.set_num_threads(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step = build(case, shape, "cpu")
        step(lambda phase: None)
        with record_function("measured step"):
            step(lambda phase: None)
    events = record.profiler.kineto_results.events()
    window = next(e for e in events if e.name() == "measured step")
    start, end = window.start_ns(), window.start_ns() + window.duration_ns()
    level = before = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        if event.start_ns() > end:
            break
        level += event.nbytes()
        if event.start_ns() < start:
            before = peak = level
        peak = max(peak, level)
    began = time.perf_counter()
    step(lambda phase: None)
    return {"before_bytes": before, "peak_bytes": peak, "step_ms": (time.perf_counter() - began) * 1e3}


def clean(device: str) -> None:
    """Drop what the case before left, workspaces of libraries included."""
    gc.collect()
    if device == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def measure(names: Iterable[str], device: str) -> Iterator[dict[str, Any]]:
    """Yield all that is known after each case; one that fails has an ``error``."""
    shapes = SHAPES if device == "cuda" else TINY
    known = cases(shapes)
    found: dict[str, Any] = {"device": "cpu", "torch": torch.__version__, "micro_batches": MICRO_BATCHES}
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
    found |= {"shapes": {name: shape._asdict() for name, shape in shapes.items()}, "cases": {}}
    for name in list(names) or known:
        case, began = known[name], time.perf_counter()
        try:
            one = measured(case, shapes[case.model], device)
        except Exception:  # noqa: BLE001  # the other cases are worth measuring
            one = {"error": traceback.format_exc()}
        clean(device)
        found["cases"][name] = {**case._asdict(), **one, "took_s": time.perf_counter() - began}
        yield found


def line(name: str, one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{name}: {one['error'].splitlines()[-1]}"
    figures = {"MiB": one["peak_bytes"] / 2**20, "ms": one["step_ms"], "busy ms": one.get("busy_ms", 0.0)}
    return f"{name}: {', '.join(f'{value:.2f} {unit}' for unit, value in figures.items())} ({one['took_s']:.1f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases; by default all")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--cpu", action="store_true", help="tiny models, on the CPU")
    options = parser.parse_args()
    for found in measure(options.names, "cpu" if options.cpu else "cuda"):
        options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(line(*list(found["cases"].items())[-1]), flush=True)


if __name__ == "__main__":
    main()
