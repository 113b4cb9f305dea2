"""What came of a run, in sentences that one can act on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.reports.layout import tidy
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.reports.simulation.records import Attempt, Place, SimulationView

DEAR = 1.02
"""Overhead from which on other policies are worth a try."""
_RULES = {
    "eager": "what the program drops is evicted at once",
    "none": "what the program drops is left to the policy",
    "banish": "what the program drops goes for good when nothing evicted is made of it",
    "ignore": "what the program drops is never heard of",
}


def rules(deallocation: str, compat: bool) -> str:
    """By which rules a step is played."""
    return _RULES[deallocation] + ("; the rules of DTR's simulator" if compat else "")


def verdict(view: SimulationView) -> str:
    """One sentence: does it fit, and at what price?"""
    budget = "no limit" if view.budget_bytes is None else budget_text(view.budget_bytes)
    peaks = f"peak {format_bytes(view.peak_bytes)} of {format_bytes(view.baseline_bytes)}"
    if view.status == "over":
        return (
            f"The plan does not fit {budget}: its peak is {format_bytes(view.peak_bytes)}, {_more(view.overhead)} time."
        )
    if view.status == "oom":
        return f"Does not fit {budget}: {_out_of_memory(view)}"
    if view.status == "thrash":
        return f"Given up at {budget}: {_thrashing(view)}"
    if view.budget_bytes is None:
        return f"{_more(view.overhead)} time, {peaks}."
    if not view.recomputed and view.peak_bytes >= view.baseline_bytes:
        return f"Fits {budget} as it is: the step's peak is {format_bytes(view.peak_bytes)}."
    return f"Fits {budget}: {_more(view.overhead)} time, {peaks}."


def _out_of_memory(view: SimulationView) -> str:
    stop = view.stopped
    if stop is None:
        return "out of memory."
    asked = format_bytes(stop.asked_bytes)
    held = sum(row.pinned_bytes + row.locked_bytes for row in stop.held)
    if stop.at.op < 0:
        return "what exists before the step takes more by itself."
    text = f"{place_text(stop.at)} asks for {asked} beside {format_bytes(held)} that cannot be evicted"
    if stop.at != stop.goal:
        text += f"; it is computed again for {place_text(stop.goal)}"
    return f"{text}."


def _thrashing(view: SimulationView) -> str:
    stop, limit = view.stopped, view.overhead_limit or 1.0
    where = f" at {place_text(stop.goal)}" if stop is not None else ""
    return f"more than {_more(limit)} time was spent on recomputation{where}, the limit (--limit {limit:g})."


def advice(view: SimulationView) -> Iterator[str]:
    """What to try next; nothing for a run that fits."""
    if view.status not in ("oom", "thrash"):
        if view.status == "ok" and view.overhead > DEAR and view.counters is not None and not view.instead:
            yield "Another policy may take less time: --policy auto tries all."
        return
    fits = [item for item in view.instead if item.status == "ok"]
    if view.instead and not fits and view.budget_bytes is not None and view.budget_bytes >= view.least_bytes:
        yield f"Nor do {', '.join(item.policy for item in view.instead[:6])} fit it."
    if fits:
        best = min(fits, key=lambda item: item.overhead)
        yield f"{best.policy} fits: {_more(best.overhead)} time (--policy {best.policy})."
    if view.smallest is not None:
        yield _smallest(view.smallest)
    if view.budget_bytes is not None and view.budget_bytes < view.least_bytes and view.least_op is not None:
        yield (
            f"No policy runs it in less than {format_bytes(view.least_bytes)}, which {place_text(view.least_op)} needs "
            "with what must stay: make the batch smaller."
        )
    elif not fits:
        if not view.instead:
            yield "Other policies may do better: --policy auto tries all."
        if view.status == "thrash" and view.overhead_limit is not None:
            yield f"If so much time is worth it: --limit {2 * view.overhead_limit:g}."


def _smallest(found: Attempt) -> str:
    if found.status != "ok":
        return f"{found.policy} does not end even with the step's own peak, {format_bytes(found.budget_bytes)}."
    return (
        f"{found.policy} fits from {budget_text(found.budget_bytes)} on, found by bisection: "
        f"{_more(found.overhead)} time (--budget {budget_text(found.budget_bytes).replace(' ', '')})."
    )


def place_text(place: Place) -> str:
    """An op as it is spoken of: number, name, module and line."""
    module = f" in {tidy(place.module)}" if place.module not in ("", "(outside)") else ""
    source = f" ({tidy(place.source)})" if place.source else ""
    name = short(place.name)
    return f"op {place.op}, {name}{module}{source}"


def short(name: str) -> str:
    """The name of an op or storage without what is the same in most."""
    return tidy(name.removeprefix("aten.").removeprefix("dtr.").removesuffix(".default"))


def budget_text(nbytes: int) -> str:
    """``nbytes`` so that it can be typed again: the same number of bytes, be it in another unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 10**9), ("MB", 10**6)):
        if nbytes and nbytes % size == 0:
            return f"{nbytes // size} {unit}"
    return format_bytes(nbytes)


def time_text(ns: float) -> str:
    """A duration for a reader."""
    return format_seconds(ns / 1e9)


def _more(overhead: float) -> str:
    """``+2.1 %`` of an overhead of 1.021."""
    return "+" + format_percent(overhead - 1)
