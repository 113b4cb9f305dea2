"""Capture time and peak memory per model; file and timeline time against size.

    python benchmarks/capture_time.py [--write] [MODEL ...]

Each model runs in a process of its own. *Recording* is the recorded step with everything that makes a Graph of it;
*bare* is the same step on PyTorch's fake tensors with nothing recorded (median of three, in the same process). Seconds
of wall time.
"""

from __future__ import annotations

import gc
import resource
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import harness

LLAMA_70B = {
    "layers": 80,
    "hidden": 8192,
    "heads": 64,
    "kv_heads": 8,
    "intermediate": 28672,
    "vocab": 128256,
    "seq": 2048,
    "batch": 1,
    "dtype": "bfloat16",
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "resnet50": ("resnet50", {}),
    "bert": ("bert", {}),
    "hf_gpt2": ("hf_gpt2", {}),
    "llama-70b": ("hf_llama", LLAMA_70B),
}
SMALLEST: dict[str, tuple[str, dict[str, Any]]] = {"gpt2-small": ("gpt2", {"layers": 2})}
COUNTS = (1000, 10_000, 100_000)
COLUMNS = {
    "model": "{model}",
    "ops": "{ops:,}",
    "import s": "{import_s:.2f}",
    "capture s": "{capture_s:.3f}",
    "recording s": "{recording_s:.3f}",
    "us per op": "{op_us:.0f}",
    "bare s": "{bare_s:.3f}",
    "ratio": "{ratio:.2f}",
    "peak RSS MiB": "{peak_rss_mib:.0f}",
}
GROWTH = {
    "ops": "{ops:,}",
    "file KiB": "{file_kib:,}",
    "save s": "{save_s:.3f}",
    "load s": "{load_s:.3f}",
    "count s": "{count_s:.3f}",
    "timeline s": "{timeline_s:.3f}",
}


def captured(name: str) -> harness.Row:
    """Measure one model in this process."""
    example, settings = {**MODELS, **SMALLEST}[name]
    began = time.perf_counter()
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tensortide import capture
    from tensortide.examples import find
    from tensortide.recorder.fake_mode import StepFakeMode, same_paths

    class Bare(StepFakeMode):
        """PyTorch's own dispatch, without the shortcuts for known results and for the question of a device."""

        __torch_dispatch__ = FakeTensorMode.__torch_dispatch__

        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.worked_out(func, types, args, kwargs or {})

    workload = find(example).load()
    imported = time.perf_counter() - began
    marks: dict[str, float] = {}
    began = time.perf_counter()
    graph = capture(
        workload, hyperparameters=settings, progress=lambda what: marks.setdefault(what, time.perf_counter())
    )
    ended = time.perf_counter()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    gc.collect()
    gc.disable()
    with same_paths(), Bare():
        step = workload(**settings)
        step()
        bare = statistics.median(harness.paired(3, step, clock=time.perf_counter)[0])
    recording = ended - marks["recording"]
    row = {"model": name, "ops": len(graph), "import_s": imported, "capture_s": ended - began}
    return {
        **row,
        "recording_s": recording,
        "op_us": recording / len(graph) * 1e6,
        "bare_s": bare,
        "ratio": recording / bare,
        "peak_rss_mib": peak_mib,
    }


def grown(ops: int) -> harness.Row:
    """Seconds to save, load, count and lay out a GPT-2 step of about so many ops."""
    from tensortide import capture, count, save, timeline
    from tensortide.graph import load

    small = {"layers": max(1, ops // 150), "hidden": 64, "heads": 4, "seq": 64, "batch": 1}
    graph = capture("gpt2", hyperparameters=small)
    timed = partial(harness.seconds, clock=time.perf_counter)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.tide"
        row = {"asked": ops, "ops": len(graph), "save_s": timed(partial(save, graph, path))}
        row |= {"load_s": timed(partial(load, path)), "file_kib": path.stat().st_size // 1024}
    return {**row, "count_s": timed(partial(count, graph)), "timeline_s": timed(partial(timeline, graph))}


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("model",))
    for name in run.cases(SMALLEST if run.smallest else MODELS):
        table.add(run.child(captured, name))
    table = run.table(GROWTH, ("asked",), "Against the number of ops")
    for ops in COUNTS[:1] if run.smallest else COUNTS:
        table.add(run.child(grown, ops))


if __name__ == "__main__":
    harness.main(__doc__, measure)
