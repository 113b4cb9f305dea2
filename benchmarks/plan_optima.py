"""Plans of small steps against their proven optima: recomputation, moves over links, and both.

    python benchmarks/plan_optima.py [--write] [--work OPS] [INSTANCE ...]

Every case of the planning reference data, at the default effort, within a limit of work alone, so that a loaded machine
finds the same. *Best* is the optimum, or the best known; *gap* is the plan found against it. The checker of the
reference data, which knows nothing of this package, plays each plan, and has to come to the time that is claimed. `!`
marks a bound above the best, and a plan or a verdict that is wrong.
"""

from __future__ import annotations

import json
import time

import harness

from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.planning import fastest
from tensortide.studies.planning.warm import warm_up

FILES = ("recompute", "offload", "joint")
WITHIN = 1.0
"""Per cent over the optimum that count as near."""
COLUMNS = {
    "instance": "{instance}",
    "ops": "{ops}",
    "budget": "{budget}",
    "allowed": "{allow}",
    "order": "{order}",
    "best": "{best}",
    "found": "{found}",
    "gap %": "{gap:.2f}",
    "bound": "{bound}",
    "status": "{status}",
    "source": "{source}",
    "CPU s": "{seconds:.1f}",
}


def measure(run: harness.Run) -> None:
    from tests.plans.events.judge import instance_of
    from tests.studies.planning.given import faults, problem_of

    folder = harness.reference() / "planning"
    stored = {file: json.loads((folder / f"{file}.json").read_text()) for file in FILES}
    table = run.table(COLUMNS, ("instance", "budget", "allow", "order"))
    warm_up(moves=True)
    named = {name: (data, raw) for data in stored.values() for name, raw in data["instances"].items()}
    for name, (data, raw) in run.cases(named).items():
        given = instance_of(raw)
        for case in data["cases"]:
            if case["instance"] != name:
                continue
            began = time.process_time()
            found = fastest(problem_of(given, case, limit=SearchLimit(work=run.options.work)))
            best, took = case["best_ns"], found.step_ns
            table.add(
                {
                    "instance": name,
                    "ops": len(given.ops),
                    "budget": case["budget_bytes"],
                    "allow": case["allow"],
                    "order": case["order"],
                    "best": best,
                    "found": took,
                    "gap": None if best is None or took is None else 100 * (took / best - 1),
                    "bound": f"{found.bound_ns}{'!' if faults(raw, case, found) else ''}",
                    "status": "proved" if found.proved else found.status,
                    "source": found.source,
                    "seconds": time.process_time() - began,
                }
            )
    summarize(run, table.rows)


def summarize(run: harness.Run, rows: list[harness.Row]) -> None:
    for allow in dict.fromkeys(row["allow"] for row in rows):
        some = [row for row in rows if row["allow"] == allow and row["best"] is not None]
        gaps = [row["gap"] for row in some if row["gap"] is not None]
        near, wrong = sum(gap <= WITHIN for gap in gaps), sum("!" in row["bound"] for row in some)
        mean, worst = sum(gaps) / max(1, len(gaps)), max(gaps, default=0.0)
        text = f"{allow}: {near} of {len(some)} within {WITHIN:g} %, mean gap {mean:.2f} %, worst {worst:.2f} %"
        run.note(f"{text}; {wrong} wrong; {sum(row['seconds'] for row in some):.0f} CPU s.")


if __name__ == "__main__":
    harness.main(__doc__, measure, work={"type": float, "default": 1e8, "help": "ops that each search may play"})
