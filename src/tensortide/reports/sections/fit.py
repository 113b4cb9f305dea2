"""Section ``fit``: does a step fit, and what would make it: ranked actions, the cheapest set, the largest batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Note, Section, Table
from tensortide.reports.names import op_text
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import Step
from tensortide.reports.sections.verdict import blocks
from tensortide.studies.fit import Fit
from tensortide.studies.fit.actions import Action, Refused
from tensortide.studies.fit.deciding import if_off
from tensortide.studies.fit.loop import Part
from tensortide.studies.fit.results import FitOnMachines, Outcome
from tensortide.units import format_bytes

FIGURES = (
    *("action.title", "trial.peak_bytes", "trial.saved_bytes", "trial.step_ns", "trial.step_change", "trial.fits"),
    *("trial.reserved_bytes", "trial.saved_per_ms_bytes"),
)
"""What an action saves and costs."""
TIMES = ("trial.step_ns", "trial.step_change")
"""Figures that need a named card."""


def document(found: Fit) -> Document:
    """Show everything that was found, under the head of the step."""
    card = None if found.subject.timed else found.subject.card
    return Step(found.subject.graph, card=card).document(section(found))


def of_each(found: FitOnMachines) -> Document:
    """Show what was found on each machine, a table of them first."""
    graph = found.each[0].subject.graph
    head = Step(msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, machine="")))
    each, shown = [], list[AnyBlock]()
    for number, one in enumerate(found.each, 1):
        blocks = section(one).blocks
        each.append(Section(f"fit_{number}", one.machine, blocks=tuple(_once(block, shown) for block in blocks)))
        shown += blocks
    return head.document(machines(found.each), *each)


def _once(block: AnyBlock, shown: Sequence[AnyBlock]) -> AnyBlock:
    """``block``, which text leaves out where it is among those ``shown``."""
    again = isinstance(block, Note | Table) and not block.only and block in shown
    return msgspec.structs.replace(block, only="page") if again else block


def machines(found: Sequence[Fit]) -> Section:
    """Make the section that has a row for each machine."""
    figures = ("base.peak_bytes", "base.reserved_bytes", "subject.limit_bytes", "base.step_ns")
    batches = column(Fit, found, "largest.batch", data=all(one.largest is None for one in found))
    sets = column(Fit, found, "cheapest_set", data=not any(one.cheapest_set for one in found))
    rows = table(Fit, found, "machine", "fits", *figures, batches, sets, key="machines", heads=1)
    return Section("machines", "By machine", blocks=(rows,))


def section(found: Fit) -> Section:
    """Make the section alone."""
    batch = found.subject.batch
    samples = None if batch is None else batch[1]
    made: list[AnyBlock] = [*blocks(found.verdict, samples, found.largest)]
    if found.subject.by_default:
        made.append(Note(text=f"No --machine is given: {found.machine} is the default."))
    made += _one_op(found)
    made += _largest(found)
    made += _actions(found)
    made += _together(found)
    made += _loop(found)
    made += _others(found)
    return Section("fit", "Fit", blocks=tuple(made))


def _one_op(found: Fit) -> Iterator[AnyBlock]:
    """Name the op that needs more than the memory by itself."""
    if found.one_op is None:
        return
    op, needed = op_text(found.subject.graph, found.one_op.op), format_bytes(found.one_op.nbytes)
    text = (
        f"{op} needs {needed} by itself, for its inputs, results and workspace, and there are "
        f"{format_bytes(found.verdict.judged_bytes)}: more memory, or what makes that op smaller; no recomputation or "
        "offload alone does."
    )
    yield Note(key="one_op", text=f"{text[0].upper()}{text[1:]}", kind="failure")
    yield facts(found, "one_op.nbytes as one_op_bytes", "one_op.op as one_op", data=True)


def _largest(found: Fit) -> Iterator[AnyBlock]:
    one = found.largest
    if one is None:
        return
    captures = f"({one.captures} capture{'s' * (one.captures > 1)})"
    if not one.batch:
        reserved = format_bytes(one.next_bytes or 0)
        text = f"largest batch: not even {one.name}=1 is sure to fit, which reserves {reserved} {captures}"
    else:
        text = f"{one.name}={one.batch:,}, which reserves {format_bytes(one.reserved_bytes)}"
        if one.next_batch is None or one.next_bytes is None:
            text = f"largest batch: at least {text} {captures}"
        else:
            near = one.next_batch == one.batch + 1
            about = "" if near else "at least " if one.least else "about "
            next_ = "one more" if near else f"{one.name}={one.next_batch:,}"
            reserved = format_bytes(one.next_bytes)
            text = f"largest batch: {about}{text}; {next_} would reserve {reserved} {captures}"
        if off := if_off(found.verdict, one.reserved_bytes):
            text += f"; {off}"
    yield Note(text=text, kind="advice")


def _actions(found: Fit) -> Iterator[AnyBlock]:
    chosen = found.recommended
    if found.stopped:
        yield Note(text=_interrupted(found), kind="warning")
    elif not chosen and any(one.trial is not None for one in found.outcomes):
        yield Note(text="No action saves 2 % of the peak.", kind="advice")
    if not chosen:
        return
    rank = Column("rank", "", "count", tuple(range(1, len(chosen) + 1)))
    first = "what costs no time" if found.fits == "fits" else "what makes it fit"
    then = "memory saved per ms" if found.subject.timed else "memory saved; no card is named, so times are unknown"
    remark = f"each alone, for as many samples; first {first}, then by {then}"
    figures = FIGURES if found.subject.timed else [name for name in FIGURES if name not in TIMES]
    columns = [*figures, *(column(Outcome, chosen, name, data=True) for name in TIMES if name not in figures)]
    yield table(Outcome, chosen, rank, *columns, "line", key="actions", title="What to do", remark=remark)
    yield Note(text="\n".join(f"{number}  {one.line}" for number, one in enumerate(chosen, 1)), kind="advice")


def _interrupted(found: Fit) -> str:
    """The point at which the search was cut short."""
    counted = f"Interrupted: {found.tried} of {found.planned} actions were tried"
    if found.tried and not found.recommended:
        counted += "; none of these saves 2 % of the peak"
    sets = "" if found.fits == "fits" or found.together is not None else ", no set of actions that fits was found yet"
    return f"{counted}{sets}."


def _together(found: Fit) -> Iterator[AnyBlock]:
    one = found.together
    if one is None:
        return
    names, figures = " + ".join(action.title for action in one.actions), format_bytes(one.trial.peak_bytes)
    if one.trial.reserved_bytes != one.trial.peak_bytes:
        figures += f" of tensors, {format_bytes(one.trial.reserved_bytes)} reserved"
    if one.trial.step_ns is not None:
        figures += f", a step in {value_text(one.trial.step_ns, 'ns')}"
    least = "cheapest" if found.subject.timed else "smallest"
    text = (
        f"{least} set that fits at the same batch: {names}: {figures}"
        if one.fits == "fits"
        else f"no set is sure to fit; least is {names}: {figures}"
    )
    yield Note(text=text, kind="verdict" if one.fits == "fits" else "failure")
    keys = Fact("set", "", ", ".join(action.key for action in one.actions), data=True)
    reached = ("trial.peak_bytes as set_peak_bytes", "trial.reserved_bytes as set_reserved_bytes")
    yield facts(one, keys, *reached, "trial.step_ns as set_time_ns", data=True)


def _loop(found: Fit) -> Iterator[AnyBlock]:
    """The rest of the loop: in text a line, on the page a table."""
    if not found.parts:
        return
    told = []
    for one in found.parts:
        where = f" ({one.where})" * bool(one.where)
        told.append(f"{one.name}{where} {format_bytes(one.peak_bytes)}{f', {one.what}' * (one.name == 'saving')}")
    yield Note(text=f"Peaks of the rest of the loop: {'; '.join(told)}.", only="text")
    yield table(Part, found.parts, key="loop", title="The rest of the loop", only="page")


def _others(found: Fit) -> Iterator[AnyBlock]:
    """Name the actions that are not recommended, and those that do not apply with the reason; the page has all."""
    further = [
        f"{one.action.title} (saves {format_bytes(one.trial.saved_bytes)}{_change(one.trial.step_change)})"
        for one in found.worthwhile[len(found.recommended) :]
        if one.trial is not None
    ]
    useless = [one.action.title for one in found.outcomes if one.trial is not None and one not in found.worthwhile]
    reasons: dict[str, list[str]] = {}
    untried = [one for one in found.outcomes if one.trial is None and isinstance(one.action, Action)]
    for one in found.outcomes:
        if isinstance(one.action, Refused):
            reasons.setdefault(one.reason, []).append(one.action.title)
    if untried and found.fits == "fits":
        yield Note(
            text=f"Not tried: {', '.join(one.action.title for one in untried)} ({untried[0].reason}).", only="text"
        )
    elif untried:
        ways = (f"{one.action.title}: {one.line}" for one in untried)
        yield Note(text="\n- ".join([f"What may help, not tried ({untried[0].reason}):", *ways]), kind="advice")
    lines = [f"Further: {', '.join(further)}."] if further else []
    if useless:
        lines.append(f"Saves less than 2 %: {', '.join(useless)}.")
    if reasons:
        told = (f"{', '.join(titles)} ({reason})" for reason, titles in reasons.items())
        lines.append(f"Not applicable: {', '.join(told)}.")
    if lines:
        yield Note(text="\n".join(lines), only="text")
    yield table(
        Outcome, found.outcomes, *FIGURES, "reason", "action.key", key="outcomes", title="Every action", only="page"
    )


def _change(share: float | None) -> str:
    return "" if share is None else f", step {value_text(share, 'change')}"
