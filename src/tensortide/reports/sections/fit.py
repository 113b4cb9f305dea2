"""Section ``fit``: does a step fit, and what would make it: ranked actions, the cheapest set, the largest batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import Step
from tensortide.reports.sections.verdict import WORDS, blocks
from tensortide.studies.fit import Fit
from tensortide.studies.fit.study import Outcome, Together
from tensortide.units import format_bytes

__all__ = ["document", "section"]


def document(found: Sequence[Fit]) -> Document:
    """Show everything that was found on each machine, under the head of the step; of several, a table first."""
    graph = found[0].subject.graph
    if len(found) == 1:
        return Step(graph).document(section(found[0]))
    head = Step(msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, machine="")))
    each = (
        msgspec.structs.replace(section(one), key=f"fit_{number}", title=one.subject.row.name)
        for number, one in enumerate(found, 1)
    )
    return head.document(machines(found), *each)


def machines(found: Sequence[Fit]) -> Section:
    """Make the section that has a row for each machine."""
    bases = [one.base for one in found]
    columns = (
        Column("machine", "Machine", "text", tuple(one.subject.row.name for one in found)),
        Column("fits", "", "text", tuple(WORDS[one.fits(one.base)] for one in found)),
        Column("peak", "Peak", "bytes", tuple(base.peak_bytes for base in bases)),
        Column("reserved", "Allocator", "bytes", tuple(base.reserved_bytes for base in bases), at_width=110),
        Column("usable", "Usable", "bytes", tuple(one.subject.limit_bytes for one in found)),
        Column("time", "Step", "ns", tuple(base.time_ns for base in bases)),
        Column("largest", "Largest batch", "count", tuple(one.largest.batch if one.largest else None for one in found)),
        Column("set", "Cheapest set that fits", "text", tuple(map(_set, found)), fold=True),
    )
    table = Table(key="machines", columns=columns, heads=1)
    return Section("machines", "By machine", blocks=(table,))


def _set(found: Fit) -> str:
    """The titles of the actions that make the step fit; empty if it fits, or if none do."""
    one = found.together
    return " + ".join(action.title for action in one.actions) if one is not None and one.fits else ""


def section(found: Fit) -> Section:
    """Make the section alone."""
    batch = found.subject.batch
    made: list[AnyBlock] = [*blocks(found.verdict, None if batch is None else batch[1])]
    made += _largest(found)
    made += _actions(found)
    made += _together(found)
    made += _loop(found)
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
    yield Table(
        key="actions",
        title="What to do",
        remark=_order(found),
        columns=(
            Column("rank", "", "text", tuple(str(number) for number in range(1, len(chosen) + 1))),
            *_figures(found, chosen),
            Column("line", "", "code", tuple(one.line for one in chosen), data=True),
        ),
    )
    for number, one in enumerate(chosen, 1):
        yield Note(text=f"{number}  {one.line}", kind="advice")


def _order(found: Fit) -> str:
    first = "what costs no time" if found.fits(found.base) == "yes" else "what makes it fit"
    return f"each alone, for as many samples; first {first}, then bytes saved per ms lost"


def _figures(found: Fit, rows: tuple[Outcome, ...]) -> Iterator[Column]:
    """Columns of what actions save and cost."""
    trials = [one.trial for one in rows]
    yield Column("action", "Action", "text", tuple(one.action.title for one in rows), fold=True)
    yield Column("peak", "Peak", "bytes", tuple(None if one is None else one.peak_bytes for one in trials))
    yield Column("saved", "saved", "bytes", tuple(one.saved_bytes if one.trial else None for one in rows))
    yield Column("time", "Step", "ns", tuple(None if one is None else one.time_ns for one in trials))
    changes = tuple(one.lost_share if one.trial else None for one in rows)
    yield Column("change", "change", "change", changes)
    fits = tuple(None if one is None else found.fits(one) for one in trials)
    yield Column("fits", "", "text", tuple("" if one is None else WORDS[one] for one in fits))
    taken = tuple(None if one is None else one.reserved_bytes for one in trials)
    yield Column("reserved", "Allocator", "bytes", taken, at_width=110)
    rates = tuple(round(one.saved_bytes * 1e6 / one.lost_ns) if one.trial and one.lost_ns > 0 else None for one in rows)
    yield Column("saved_per_ms", "", "bytes", rates, data=True)


def _together(found: Fit) -> Iterator[AnyBlock]:
    one = found.together
    if one is None:
        return
    names = " + ".join(action.title for action in one.actions)
    figures = (
        f"{format_bytes(one.trial.peak_bytes)} at the peak ({format_bytes(one.trial.reserved_bytes)} reserved), "
        f"a step in {value_text(one.trial.time_ns, 'ns')}"
    )
    text = (
        f"cheapest set that fits at the same batch: {names}: {figures}"
        if one.fits
        else f"no set fits; least is {names}: {figures}"
    )
    yield Note(text=text, kind="verdict" if one.fits else "failure")
    yield Facts(rows=tuple(_facts(one)))


def _facts(one: Together) -> Iterator[Fact]:
    yield Fact("set", "", ", ".join(action.key for action in one.actions), data=True)
    yield Fact("set_peak", "", one.trial.peak_bytes, "bytes", data=True)
    yield Fact("set_reserved", "", one.trial.reserved_bytes, "bytes", data=True)
    yield Fact("set_time", "", one.trial.time_ns, "ns", data=True)


def _loop(found: Fit) -> Iterator[AnyBlock]:
    if not found.parts:
        return
    yield Table(
        key="loop",
        title="The rest of the loop",
        columns=(
            Column("part", "", "text", tuple(one.name for one in found.parts)),
            Column("peak", "Peak", "bytes", tuple(one.peak_bytes for one in found.parts)),
            Column("where", "", "text", tuple(one.where for one in found.parts)),
            Column("what", "", "text", tuple(one.what for one in found.parts), fold=True, dim=True),
            Column("reserved", "", "bytes", tuple(one.reserved_bytes for one in found.parts), data=True),
        ),
    )


def _others(found: Fit) -> Iterator[AnyBlock]:
    """Name the actions that are not recommended, and those that do not apply with the reason; the page has all."""
    further = [
        f"{one.action.title} ({format_bytes(one.saved_bytes)} saved, step {value_text(one.lost_share, 'change')})"
        for one in found.worthwhile[len(found.recommended) :]
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
    columns = (
        *_figures(found, found.outcomes),
        Column("reason", "Why not", "text", tuple(one.reason for one in found.outcomes), fold=True),
        Column("key", "", "text", tuple(one.action.key for one in found.outcomes), data=True),
    )
    yield Table(key="outcomes", title="Every action", columns=columns, only="page")
