"""Sentences on a run under a memory budget: the verdict, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.reports.names import op_text
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.replays.remat import Simulation
    from tensortide.studies.remat.budgeted import Budgeted

EXPENSIVE = 1.02
"""Overhead from which on other policies are worth a try."""


def verdict(run: Budgeted) -> str:
    """Say in one sentence whether the step fits, and at what price."""
    budget = "no limit" if run.budget_bytes is None else budget_text(run.budget_bytes)
    peak, baseline = format_bytes(run.peak_bytes), run.simulator.baseline_bytes
    match run.outcome:
        case "over":
            return f"The plan does not fit {budget}: its peak is {peak}, {_more(run.overhead)} time."
        case "oom":
            return f"Does not fit {budget}: {_out_of_memory(run)}"
        case "thrash":
            return f"Given up at {budget}: {_thrashing(run)}"
    price = f"{_more(run.overhead)} time, peak {peak} of {format_bytes(baseline)}."
    if run.budget_bytes is None:
        return price
    if not run.recomputed and run.peak_bytes >= baseline:
        return f"Fits {budget} as it is: the step's peak is {peak}."
    return f"Fits {budget}: {price}"


def _out_of_memory(run: Budgeted) -> str:
    stop = run.telemetry.stop if run.telemetry else None
    if stop is None:
        return "out of memory."
    if stop.op < 0:
        return "what exists before the step takes more by itself."
    held = format_bytes(sum(item.nbytes for item in stop.held))
    op = op_text(run.graph, stop.op)
    text = f"{op} asks for {format_bytes(stop.asked_bytes)} beside {held} that cannot be evicted"
    return text + (f"; it is recomputed for {op_text(run.graph, stop.goal_op)}." if stop.op != stop.goal_op else ".")


def _thrashing(run: Budgeted) -> str:
    stop = run.telemetry.stop if run.telemetry else None
    limit = (run.simulation.overhead_limit if run.simulation else None) or 1.0
    where = "" if stop is None else f" at {op_text(run.graph, stop.goal_op)}"
    return f"more than {_more(limit)} time was spent on recomputation{where}, the limit (--limit {limit:g})."


def advice(run: Budgeted) -> Iterator[str]:
    """Say what to try next; nothing for a run that fits."""
    if run.ended:
        if run.outcome == "ok" and run.overhead > EXPENSIVE and run.telemetry and not run.others:
            yield "Another policy may take less time: --policy auto tries all."
        return
    least, op = run.least
    budget = run.budget_bytes or 0
    fits = [other for other in run.others if other.status == "ok"]
    if run.others and not fits and budget >= least:
        yield f"Nor do {', '.join(policy_name(run, other) for other in run.others[:6])} fit it."
    if fits:
        best = min(fits, key=lambda other: other.overhead)
        yield f"{policy_name(run, best)} fits: {_more(best.overhead)} time (--policy {policy_name(run, best)})."
    yield from _from_on(run)
    if budget < least:
        yield (
            f"No policy runs it in less than {format_bytes(least)}, which {op_text(run.graph, op)} needs "
            "with what must stay: make the batch smaller."
        )
    elif not fits:
        if not run.others:
            yield "Other policies may do better: --policy auto tries all."
        if run.simulation and run.outcome == "thrash" and run.simulation.overhead_limit is not None:
            yield f"If so much time is worth it: --limit {2 * run.simulation.overhead_limit:g}."


def _from_on(run: Budgeted) -> Iterator[str]:
    """Say from which budget on the step fits: by the best plan known, and by the policy."""
    planned = run.least_plan
    if planned is not None and (run.smallest is None or planned.budget_bytes < (run.smallest.budget_bytes or 0)):
        budget = budget_text(planned.budget_bytes)
        yield (
            f"A plan made ahead fits from {budget} on: {_more(1 + (planned.extra_share or 0.0))} time "
            f"(--budget {budget.replace(' ', '')})."
        )
    elif run.smallest is not None:
        yield _smallest(run.smallest)


def _smallest(found: Simulation) -> str:
    budget = found.budget_bytes or 0
    if found.status != "ok":
        return f"{found.policy} does not end even with the step's own peak, {format_bytes(budget)}."
    return (
        f"{found.policy} fits from {budget_text(budget)} on, found by bisection: "
        f"{_more(found.overhead)} time (--budget {budget_text(budget).replace(' ', '')})."
    )


def policy_name(run: Budgeted, other: Simulation) -> str:
    """Name the policy of ``other``, one of the other runs, and banishing if it was by other rules than the first."""
    banishes = other.rules.deallocation != run.others[0].rules.deallocation
    return other.policy + (" with banishing" if banishes else "")


def budget_text(nbytes: int) -> str:
    """Write ``nbytes`` so that it can be typed again: the same number of bytes, in the largest unit that is exact."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 10**9), ("MB", 10**6)):
        if nbytes and nbytes % size == 0:
            return f"{nbytes // size} {unit}"
    return format_bytes(nbytes)


def _more(overhead: float) -> str:
    """Write an overhead of 1.021 as ``+2.1 %``."""
    return "+" + format_percent(overhead - 1)
