"""Section ``fit``: does a step fit, and what would make it: ranked actions, the cheapest set, the largest batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Note, Section
from tensortide.reports.of_records import facts, table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import Step
from tensortide.reports.sections.verdict import blocks
from tensortide.studies.fit import Fit
from tensortide.studies.fit.loop import Part
from tensortide.studies.fit.results import Outcome
from tensortide.units import format_bytes

FIGURES = (
    *("action.title", "trial.peak_bytes", "trial.saved_bytes", "trial.step_ns", "trial.step_change", "trial.fits"),
    *("trial.reserved_bytes", "trial.saved_per_ms_bytes"),
)
"""What an action saves and costs."""


def document(found: Fit, *others: Fit) -> Document:
    """Show everything that was found, under the head of the step; beside ``others``, on further machines, a table
    first."""
    graph = found.subject.graph
    if not others:
        return Step(graph).document(section(found))
    head = Step(msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, machine="")))
    each = (
        msgspec.structs.replace(section(one), key=f"fit_{number}", title=one.subject.row.name)
        for number, one in enumerate((found, *others), 1)
    )
    return head.document(machines((found, *others)), *each)


def machines(found: Sequence[Fit]) -> Section:
    """Make the section that has a row for each machine."""
    figures = ("base.peak_bytes", "base.reserved_bytes", "subject.limit_bytes", "base.step_ns", "largest.batch")
    rows = table(Fit, found, "machine", "fits", *figures, "cheapest_set", key="machines", heads=1)
    return Section("machines", "By machine", blocks=(rows,))


def section(found: Fit) -> Section:
    """Make the section alone."""
    batch = found.subject.batch
    made: list[AnyBlock] = [*blocks(found.verdict, None if batch is None else batch[1])]
    made += _largest(found)
    made += _actions(found)
    made += _together(found)
    if found.parts:
        made.append(table(Part, found.parts, key="loop", title="The rest of the loop"))
    made += _others(found)
    if found.stopped:
        made.append(Note(text="Interrupted: this is what was known by then.", kind="warning"))
    return Section("fit", "Fit", blocks=tuple(made))


def _largest(found: Fit) -> Iterator[AnyBlock]:
    one = found.largest
    if one is None:
        return
    more = "" if one.next_bytes is None else f"; one more {format_bytes(one.next_bytes)}"
    text = (
        f"largest batch: {one.name}={one.batch:,} reserves {format_bytes(one.reserved_bytes)}{more} "
        f"({one.captures} captures)"
        if one.batch
        else f"largest batch: not even {one.name}=1 fits, which reserves {format_bytes(one.next_bytes or 0)}"
    )
    yield Note(text=f"at least {text}" if one.least else text, kind="advice")


def _actions(found: Fit) -> Iterator[AnyBlock]:
    chosen = found.recommended
    if not chosen:
        if any(one.trial is not None for one in found.outcomes):
            yield Note(text="No action saves 2 % of the peak.", kind="advice")
        return
    rank = Column("rank", "", "count", tuple(range(1, len(chosen) + 1)))
    first = "what costs no time" if found.fits == "fits" else "what makes it fit"
    remark = f"each alone, for as many samples; first {first}, then bytes saved per ms lost"
    yield table(Outcome, chosen, rank, *FIGURES, "line", key="actions", title="What to do", remark=remark)
    for number, one in enumerate(chosen, 1):
        yield Note(text=f"{number}  {one.line}", kind="advice")


def _together(found: Fit) -> Iterator[AnyBlock]:
    one = found.together
    if one is None:
        return
    names = " + ".join(action.title for action in one.actions)
    figures = (
        f"{format_bytes(one.trial.peak_bytes)} at the peak ({format_bytes(one.trial.reserved_bytes)} reserved), "
        f"a step in {value_text(one.trial.step_ns, 'ns')}"
    )
    text = (
        f"cheapest set that fits at the same batch: {names}: {figures}"
        if one.fits
        else f"no set fits; least is {names}: {figures}"
    )
    yield Note(text=text, kind="verdict" if one.fits else "failure")
    keys = Fact("set", "", ", ".join(action.key for action in one.actions), data=True)
    reached = ("trial.peak_bytes as set_peak_bytes", "trial.reserved_bytes as set_reserved_bytes")
    yield facts(one, keys, *reached, "trial.step_ns as set_time_ns", data=True)


def _others(found: Fit) -> Iterator[AnyBlock]:
    """Name the actions that are not recommended, and those that do not apply with the reason; the page has all."""
    further = [
        f"{one.action.title} ({format_bytes(one.trial.saved_bytes)} saved, "
        f"step {value_text(one.trial.step_change, 'change')})"
        for one in found.worthwhile[len(found.recommended) :]
        if one.trial is not None
    ]
    useless = [one.action.title for one in found.outcomes if one.trial is not None and one not in found.worthwhile]
    reasons: dict[str, list[str]] = {}
    for one in found.outcomes:
        if one.trial is None:
            reasons.setdefault(one.reason, []).append(one.action.title)
    lines = [f"Further: {', '.join(further)}."] if further else []
    if useless:
        lines.append(f"Saves less than 2 % of the peak: {', '.join(useless)}.")
    if reasons:
        told = (f"{', '.join(titles)} ({reason})" for reason, titles in reasons.items())
        lines.append(f"Not applicable: {', '.join(told)}.")
    if lines:
        yield Note(text="\n".join(lines), only="text")
    yield table(
        Outcome, found.outcomes, *FIGURES, "reason", "action.key", key="outcomes", title="Every action", only="page"
    )
