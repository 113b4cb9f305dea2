"""Capture time and peak memory per model, against the bare step on fake tensors; file and timeline time against size.

    python benchmarks/capture_time.py [--quick] [--json FILE]

Each model runs in a process of its own. ``recording`` is the recorded step with everything that makes a Graph
of it; ``bare`` is the same step on fake tensors with nothing recorded (median of three, in the same process).
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

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


def one(name: str) -> dict[str, Any]:
    """Measure one model in this process."""
    example, settings = MODELS[name]
    began = time.perf_counter()
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tensortide import capture
    from tensortide.examples import find
    from tensortide.recorder.fake_mode import StepFakeMode
    from tensortide.recorder.parity import same_paths

    class Bare(StepFakeMode):
        """PyTorch's own dispatch, without the shortcut for the question of a tensor's device."""

        __torch_dispatch__ = FakeTensorMode.__torch_dispatch__

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
        bare = statistics.median(_seconds(step) for _ in range(3))
    recording = ended - marks["recording"]
    return {
        "model": name,
        "ops": len(graph),
        "import_s": round(imported, 2),
        "capture_s": round(ended - began, 3),
        "recording_s": round(recording, 3),
        "bare_s": round(bare, 3),
        "ratio": round(recording / bare, 2),
        "peak_rss_mib": round(peak_mib),
    }


def _seconds(step: Callable[[], Any]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def growth(counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Seconds to save, load, count and lay out a GPT-2 step of about so many ops."""
    from tensortide import capture, count, load, save, timeline
    from tensortide.examples import find

    workload, rows = find("gpt2").load(), []
    for ops in counts:
        graph = capture(
            workload, hyperparameters={"layers": max(1, ops // 150), "hidden": 64, "heads": 4, "seq": 64, "batch": 1}
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.tide"
            saved = _seconds(partial(save, graph, path))
            loaded = _seconds(partial(load, path))
            size = path.stat().st_size
        counted = _seconds(partial(count, graph))
        laid_out = _seconds(partial(timeline, graph))
        times = {"save_s": saved, "load_s": loaded, "count_s": counted, "timeline_s": laid_out}
        rows.append({"ops": len(graph), "file_kib": size // 1024, **{k: round(v, 3) for k, v in times.items()}})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--growth", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="small models only")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    if options.one or options.growth:
        result: Any = (
            one(options.one) if options.one else growth((1000, 10_000) if options.quick else (1000, 10_000, 100_000))
        )
        print(json.dumps(result))
        return
    quick = ["--quick"] if options.quick else []
    rows = [_child(["--one", name]) for name in MODELS if not (options.quick and name == "llama-70b")]
    _table(rows)
    sizes = _child(["--growth", *quick])
    _table(sizes)
    if options.json:
        machine = {"machine": platform.machine(), "processor": _processor(), "python": platform.python_version()}
        options.json.write_text(json.dumps({**machine, "capture": rows, "growth": sizes}, indent=1) + "\n")


def _child(arguments: list[str]) -> Any:
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for key in rows[0]:
        table.add_column(key, justify="left" if key == "model" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
