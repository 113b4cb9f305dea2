"""Plans under a budget, followed live: results, peaks and times against their replays, with and without overlap.

    python benchmarks/plan_live.py [--write] [STEP ...]

Each step is planned with recomputation, a link to host memory and one to a drive, for its durations as measured here
and the speeds of both links as measured here, with the workspace of kernels, within a part of the peak of the step as
it runs under a budget. It is followed with serial and with overlapped transfers. *Same*: parameters, gradients,
optimizer state, what the step returns and the random generators are those of ordinary steps, bit for bit. *Over*: bytes
of the measured peak over that of the serial replay. *Measured* is the time of the ops and of waiting for transfers,
without the program's own work between ops (following a plan takes most of that, *step* has it all); *predicted* is the
makespan of the replay with the durations of these very steps. Moved and hidden are of the busiest engine.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import harness
import torch

from tensortide import capture, plan
from tensortide.errors import PlanLeft
from tensortide.examples import find
from tensortide.plans import Plan
from tensortide.plans.events import play
from tensortide.plans.immovable import immovable
from tensortide.plans.instance import instance
from tensortide.plans.model import Compute
from tensortide.plans.remat.schedule import recorded
from tensortide.replays import replay
from tensortide.run.budget import Budget
from tensortide.run.link_speed import measured_links
from tensortide.run.measure import compared
from tensortide.run.results import Generators, results_of
from tensortide.run.traced import LiveStep
from tensortide.timelines import timeline

UNLIMITED = 1 << 60
RATIOS = (0.7, 0.5)
STEPS = 6
STEPS_AT: dict[str, dict[str, Any]] = {
    "gpt2": {
        "batch": 4,
        "seq": 64,
        "hidden": 64,
        "layers": 4,
        "heads": 4,
        "vocab": 503,
        "positions": 64,
        "dropout": 0.1,
    },
    "resnet18_cifar": {"batch": 16, "image": 16, "classes": 10, "width": 16},
    "unet": {"batch": 4, "height": 32, "width": 32, "classes": 3, "filters": 8, "levels": 3},
    "lstm": {"batch": 16, "seq": 24, "inputs": 32, "hidden": 48, "layers": 2, "classes": 5},
}
COLUMNS = {
    "step": "{step}",
    "of peak": "{ratio:.1f}",
    "transfers": "{transfers}",
    "same": "{same}",
    "budget B": "{budget_bytes:,}",
    "peak B": "{peak_bytes:,}",
    "over": "{over_bytes:+,}",
    "predicted ms": "{predicted:.2f}",
    "measured ms": "{measured:.2f}",
    "step ms": "{whole:.1f}",
    "moved": "{moved}",
    "hidden %": "{hidden:.0f}",
}
"""The columns of the table, by the field of a row that each shows."""
TIMEOUT_S = 900


def built(name: str) -> Any:
    """A step of the workload, after its first, which creates optimizer state."""
    gc.collect()
    torch.manual_seed(0)
    step = find(name).load()(**STEPS_AT[name])
    step()
    gc.collect()
    return step


def elsewhere(before: int) -> int:
    """Bytes of this process that are no part of a step with ``before`` bytes at its start."""
    gc.collect()
    with Budget(UNLIMITED, device="cpu") as probe:
        return probe.resident_bytes - before


def followed(name: str, ratio: float, limit_s: float) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    step = built(name)
    graph = capture(step)
    with Budget(UNLIMITED, graph=graph, device="cpu", workspace=False) as traced:
        for _ in range(4):
            step()
    last = traced.steps[-1]
    graph, durations = last.recorded, last.durations_ns
    before = timeline(graph, workspace=False).start_bytes
    with tempfile.TemporaryDirectory() as folder:
        links = measured_links(("host", "ssd"), 1 << 20, Path(folder))
    stays = immovable(graph)
    stated = instance(graph, "cpu", durations, links=links, workspace=False, pinned=stays)
    room = int(play(stated, [Compute(op) for op in range(len(graph))]).peak_bytes * ratio)
    found = plan(recorded(graph, durations), room, links=links, pinned=stays, workspace=False, time_limit_s=limit_s)
    if found.plan is None:
        return [{"step": name, "ratio": ratio, "transfers": "no plan", "budget_bytes": room}]
    del step
    generators, ordinary = Generators.now(), built(name)
    returned = [ordinary() for _ in range(1 + STEPS)]
    wanted = results_of(ordinary, returned[-1])
    del ordinary, returned
    rows = []
    for transfers in ("serial", "overlapped"):
        generators.rewind()
        rows.append({"step": name, "ratio": ratio, **ran(name, found.plan, last, room, before, transfers, wanted)})
    return rows


def ran(
    name: str, planned: Plan, traced: LiveStep, room: int, before: int, transfers: Any, wanted: Any
) -> dict[str, Any]:
    """Follow a plan, and compare it with ordinary steps and with its replay."""
    graph, step = traced.recorded, built(name)
    extra = elsewhere(before)
    budget = Budget(extra + room, planned, graph=graph, device="cpu", workspace=False, transfers=transfers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanLeft)
        with budget:
            step()  # what has its home on a tier moves there
            budget.reset()
            times, result = list[float](), None
            for _ in range(STEPS):
                del result  # a few bytes, which no step of a replay has
                began = time.perf_counter()
                result = step()
                times.append(time.perf_counter() - began)
    usage, latest = budget.usage, budget.steps[-STEPS:]
    both = compared(budget, latest)
    serial = replay(graph, planned, links=both.links, workspace=False, serial=True)
    line = replay(
        graph,
        planned,
        durations_ns=durations_of(latest),
        links=both.links,
        workspace=False,
        budget_bytes=room,
        serial=transfers == "serial",
    )
    waited = sum(wait.ended_ns - wait.began_ns for one in latest for wait in one.waits)
    measured = both.traffic[1] if both.traffic else {}
    busiest = max(measured, key=lambda engine: measured[engine].busy_ns, default="")
    return {
        "transfers": transfers,
        "same": "no" if wanted.difference(results_of(step, result)) else "yes",
        "left_steps": usage.left_steps,
        "recomputations": usage.recomputations // STEPS,
        "budget_bytes": room,
        "peak_bytes": usage.peak_bytes - extra,
        "over_bytes": usage.peak_bytes - extra - serial.peak_bytes,
        "predicted": line.makespan_ns / 1e6,
        "measured": ((usage.base_ns + usage.recompute_ns + waited) / STEPS) / 1e6,
        "whole": statistics.median(times) * 1e3,
        "moved": ", ".join(f"{engine} {one.moved_bytes:,}" for engine, one in measured.items()),
        "hidden": 100 * (measured[busiest].hidden_share or 0) if busiest else None,
    }


def durations_of(steps: Any) -> list[int]:
    return [round(statistics.fmean(times)) for times in zip(*(step.durations_ns for step in steps), strict=True)]


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("step", "ratio", "transfers"))
    names = ["unet"] if run.smallest else list(STEPS_AT)
    limit_s = 1.0 if run.smallest else run.options.limit
    for name in run.cases({name: name for name in names}):
        for ratio in RATIOS[:1] if run.smallest else RATIOS:
            for row in run.child(followed, name, ratio, limit_s, timeout_s=TIMEOUT_S):
                table.add(row)


if __name__ == "__main__":
    harness.main(__doc__, measure, limit={"type": float, "default": 10.0, "help": "seconds for each plan"})
