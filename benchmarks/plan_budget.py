"""Plans under a budget: added time, the bound that no plan undercuts, and the gap, beside all contenders.

    python benchmarks/plan_budget.py [--write] [--limit SECONDS] [--ratios 0.8,0.6] [TARGET ...]

Five recorded logs, where the reference data lie beside the repository, and five workloads captured for an A100-SXM-80GB
with the durations of a roofline. Each target is a process of its own. Budgets are parts of the peak that the simulator
of online policies has without one. *Known* is the fastest of the online policies and static plans that fits, *bar* the
best that contenders had before there was a search; percentages are added time by the step without recomputation. An
empty cell of *plan* with a bound of `none` is proved to have no plan that recomputes in recorded order. *First s* is
the time to the first plan that fits.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import harness

from tensortide import capture, plan
from tensortide.cost import count
from tensortide.graph import Graph
from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans.remat.schedule import Recording, recorded

RATIOS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
LOGS = ("unet-6", "resnet32-56", "transformer-10", "lstm-128", "unroll_gan-512")
WORKLOADS: dict[str, dict[str, Any]] = {
    "unet": {},
    "resnet50": {"batch": 32},
    "gpt2": {"batch": 8},
    "bert": {"batch": 8},
    "word_lm": {},
}
COMPUTE, MEMORY, LAUNCH_NS, VIEW_NS = 0.73, 0.66, 5_000, 1_500
TIMEOUT_S = 3_000
COLUMNS = {
    "step": "{step}",
    "ops": "{ops:,}",
    "budget": "{ratio:.1f}",
    "bar %": "{bar:.2f}",
    "known %": "{known:.2f}",
    "plan %": "{plan:.2f}",
    "bound %": "{bound}",
    "gap %": "{gap:.2f}",
    "source": "{source}",
    "s": "{seconds:.1f}",
    "first s": "{first:.1f}",
}


def step(name: str) -> Recording:
    log = harness.reference() / "dtr" / "logs" / f"{name}.jsonl.gz"
    if name in LOGS:
        return read_recording(Path(log))
    graph = capture(name, hyperparameters=WORKLOADS[name])
    return recorded(graph, roofline(graph), "roofline of an A100-SXM-80GB")


def roofline(graph: Graph) -> list[int]:
    """Durations as those of the bars: 5 us, and the slower of computing and moving at the shares of the datasheet's
    rates that matrix products reach; 1.5 us for a view."""
    times = []
    for cost in count(graph).costs:
        work = cost.cost
        flops = 0 if work is None else 2 * int(work.macs) + int(work.elementwise_flops) + int(work.int_ops)
        slower = max(int(cost.nbytes) / (MEMORY * 2039), flops / (COMPUTE * 19_500))
        times.append(VIEW_NS if cost.how == "view" else round(LAUNCH_NS + slower))
    return times


def bars(name: str) -> dict[float, dict[str, Any]]:
    """The bars of one target by ratio; none without the reference data."""
    file = harness.reference() / "planning" / "bars.json"
    found = json.loads(file.read_text())["bars"] if file.exists() else []
    target = f"reference/dtr/logs/{name}.jsonl.gz" if name in LOGS else harness.named(name, {})
    return {bar["ratio"]: bar for bar in found if bar["target"].split(" ")[0] == target}


def planned(name: str, ratios: list[float], limit_s: float) -> list[dict[str, Any]]:
    from tensortide.replays.remat import Simulator

    recording = step(name)
    peak = Simulator(recording).baseline_bytes
    asked, rows = bars(name), []
    for ratio in ratios:
        bar = asked.get(ratio, {})
        budget = bar.get("budget_bytes", int(peak * ratio))
        began = time.monotonic()
        first: list[float] = []

        def watch(best: int | None, _bound: int, began: float = began, first: list[float] = first) -> bool:
            if best is not None and not first:
                first.append(time.monotonic() - began)
            return True

        found = plan(recording, budget, time_limit_s=limit_s, watch=watch)
        times = [rival.step_ns for rival in found.rivals if rival.step_ns is not None and not rival.reason]
        base = found.base_ns
        rows.append(
            {
                "step": name,
                "ops": len(recording.graph),
                "ratio": ratio,
                "budget_bytes": budget,
                "bar": bar.get("best_extra_percent"),
                "known": 100 * (min(times) / base - 1) if times else None,
                "plan": None if found.step_ns is None else 100 * (found.step_ns / base - 1),
                "bound": "none" if found.status == "infeasible" else f"{100 * (found.bound_ns / base - 1):.2f}",
                "gap": None if found.gap_share is None else 100 * found.gap_share,
                "source": found.source,
                "least_bytes": found.least.nbytes,
                "seconds": found.search_s,
                "first": first[0] if first else None,
            }
        )
    return rows


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("step", "ratio"))
    there = [*(name for name in LOGS if (harness.reference() / "dtr" / "logs").is_dir()), *WORKLOADS]
    if run.smallest:
        there = ["unet"]
    for name in run.cases({name: name for name in there}):
        ratios = RATIOS[1:2] if run.smallest else [float(part) for part in run.options.ratios.split(",")]
        limit_s = 1.0 if run.smallest else run.options.limit
        for row in run.child(planned, name, ratios, limit_s, timeout_s=TIMEOUT_S):
            table.add(row)


if __name__ == "__main__":
    harness.main(
        __doc__,
        measure,
        limit={"type": float, "default": 60.0, "help": "seconds for each plan"},
        ratios={"default": ",".join(map(str, RATIOS)), "help": "budgets as parts of the peak"},
    )
