"""Files for unmodified PyTorch: what each form takes by itself, beside the plan, and what a run of the file takes.

    python benchmarks/torch_files.py [--write] [WORKLOAD ...]

Five small workloads with the predicted durations of an A100-SXM-80GB. Budgets are parts of what a step takes as it is.
Each case is planned, and a file is made for each form. Every file then runs unchanged in a process of its own on the
CPU: *measured* is the most bytes that the allocator of PyTorch had handed out during the second step, without the pool
of moved tensors, *ratio* that by the printed peak. *Same* says whether gradients, state and random numbers are those of
a run without the file, bit for bit. *more %* is added time by the time of the step as it is.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

from tensortide import capture, plan, timeline
from tensortide.graph import Graph
from tensortide.plans.remat.schedule import recorded
from tensortide.studies.torch_file import Asked, make
from tensortide.studies.torch_file.choice import text
from tensortide.timing import device, estimate

CASES: dict[str, tuple[float, dict[str, Any]]] = {
    "gpt2": (0.6, {"batch": 4, "seq": 128, "layers": 6, "hidden": 64, "heads": 4, "vocab": 512, "dropout": 0.1}),
    "resnet": (0.8, {"depth": 18, "batch": 128, "image": 64}),
    "unet": (0.9, {"batch": 4, "height": 96, "width": 96}),
    "lstm": (0.9, {"batch": 64, "seq": 100, "hidden": 64}),
    "bert": (0.7, {"batch": 8, "seq": 64, "layers": 4, "hidden": 96, "heads": 4, "vocab": 1000}),
}
COLUMNS = {
    "workload": "{workload}",
    "budget MiB": "{budget:.2f}",
    "form": "{form}",
    "step ms": "{ms:.3f}",
    "more %": "{more:.2f}",
    "peak MiB": "{peak:.2f}",
    "measured MiB": "{measured:.2f}",
    "ratio": "{ratio:.5f}",
    "same": "{same}",
    "s": "{seconds:.1f}",
    "reason": "{reason}",
}
_MIB = 2**20


def forms(name: str) -> list[harness.Row]:
    """The plan and every form of ``name``, with the runs of the files."""
    from tests.studies.torch_file.files import HOST, run

    share, settings = CASES[name]

    def again(changes: Any) -> Graph:
        return capture(name, hyperparameters=settings, changes=changes)

    graph = again(())
    recording = recorded(graph, estimate(graph, device("A100-SXM-80GB")).ns)
    budget = int(timeline(graph).peak_bytes * share)
    began = time.monotonic()
    planned = plan(recording, budget, effort=1.0, time_limit_s=20.0)
    base = {"workload": name, "budget": budget / _MIB, "reason": ""}
    rows = [{**base, "form": "the plan", **_figures(planned.step_ns, planned.peak_bytes, planned.base_ns)}]
    rows[0]["seconds"] = time.monotonic() - began
    began = time.monotonic()
    found = make(Asked(recording, planned, again, (HOST,)))
    given = json.dumps(settings)
    plain = run(name, given)
    with tempfile.TemporaryDirectory() as folder:
        for form in found.forms:
            row = {**base, "form": form.name, "reason": form.reason if form.fits else form.reason or "too large"}
            if form.peak_bytes is not None:
                row |= _figures(form.step_ns, form.peak_bytes, planned.base_ns)
                path = Path(folder) / f"{form.name.replace(' ', '_')}.py"
                path.write_text(text(form.choice, "A file of a benchmark."))
                mine = run(name, given, path)
                same = all(plain[key] == mine[key] for key in ("gradients", "state", "random"))
                row |= {"measured": mine["peak"] / _MIB, "ratio": mine["peak"] / form.peak_bytes}
                row["same"] = "yes" if same else "NO"
            rows.append(row)
    rows[1]["seconds"] = time.monotonic() - began
    return rows


def _figures(step_ns: int | None, peak_bytes: int | None, base_ns: int) -> dict[str, float]:
    if step_ns is None or peak_bytes is None:
        return {}
    return {"ms": step_ns / 1e6, "more": 100 * (step_ns / base_ns - 1), "peak": peak_bytes / _MIB}


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("workload", "form"))
    for name in run.cases(CASES):
        for row in run.child(forms, name):
            table.add(row)
    ran = [row for row in table.rows if "ratio" in row]
    if ran:
        run.note(f"Largest deviation of a measured peak: {max(abs(row['ratio'] - 1) for row in ran):.3%}.")
    if any(row["same"] != "yes" for row in ran):
        raise SystemExit("a file changes what a step computes")


if __name__ == "__main__":
    harness.main(__doc__, measure)
