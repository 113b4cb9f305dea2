"""Planning time against the number of ops, for recomputation alone and with a link to the host.

    python benchmarks/plan_scale.py [--write] [--limit SECONDS] [OPS ...]

One training step of GPT-2 at batch 2 x 128, of as many layers as make about so many ops, in two thirds of its peak,
with the predicted durations of an A100. Each case is a process of its own. Seconds are of the processor; *first s* is
the time to the first plan that fits, *peak MiB* the most memory of the process.
"""

from __future__ import annotations

import dataclasses
import resource
import time
from typing import Any

import harness

from tensortide import capture, plan
from tensortide.plans.remat.schedule import recorded
from tensortide.timing import estimate
from tensortide.timing.catalogue import device
from tensortide.timing.links import LINKS

OPS = (1_250, 2_500, 5_000, 10_000, 20_000)
OPS_PER_LAYER = 220
SHARE = 2 / 3
TIMEOUT_S = 1_200
COLUMNS = {
    "ops": "{ops:,}",
    "links": "{links}",
    "plan %": "{plan:.3f}",
    "bound %": "{bound:.3f}",
    "first s": "{first:.1f}",
    "s": "{seconds:.1f}",
    "peak MiB": "{peak:,}",
    "complete": "{complete}",
}


def planned(ops: int, with_links: bool, limit_s: float) -> dict[str, Any]:
    """Plan a step of about so many ops."""
    graph = capture("gpt2", hyperparameters={"batch": 2, "seq": 128, "layers": max(1, round(ops / OPS_PER_LAYER))})
    recording = recorded(graph, estimate(graph, device("A100-SXM-80GB")).ns, "predicted for an A100-SXM-80GB")
    links = (dataclasses.replace(LINKS["pcie4"], name="host"),) if with_links else ()
    unlimited = plan(recording, 1 << 60)
    first: list[float] = []
    began = time.process_time()

    def watch(best: int | None, _bound: int) -> bool:
        if best is not None and not first:
            first.append(time.process_time() - began)
        return True

    budget = int(SHARE * unlimited.recorded_peak_bytes)
    found = plan(recording, budget, links=links, time_limit_s=limit_s, watch=watch)
    return {
        "asked": ops,
        "ops": len(recording.graph),
        "links": "host" if with_links else "none",
        "plan": None if found.extra_share is None else 100 * found.extra_share,
        "bound": 100 * (found.bound_ns / found.base_ns - 1),
        "first": first[0] if first else None,
        "seconds": time.process_time() - began,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "complete": "yes" if found.complete else "limit",
    }


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, key=("asked", "links"))
    for ops in run.cases({str(ops): ops for ops in OPS}).values():
        for with_links in (False, True):
            limit_s = 1.0 if run.smallest else run.options.limit
            table.add(run.child(planned, ops, with_links, limit_s, timeout_s=TIMEOUT_S))


if __name__ == "__main__":
    limit = {"type": float, "default": 60.0, "help": "seconds for each plan"}
    harness.main(__doc__, measure, limit=limit)
