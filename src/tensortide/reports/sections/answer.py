"""The answer of a report, on one screen: parts of its sections, cut to what decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from textwrap import shorten
from typing import Any

from msgspec.structs import replace

from tensortide.graph.model import OUTSIDE_PATH
from tensortide.reports.blocks import AnyBlock, Fact, Facts, Note, Section, Table
from tensortide.reports.sections import Step
from tensortide.reports.sections.about import elsewhere
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.time_tables import costly
from tensortide.timing import Durations
from tensortide.units import format_ns, format_percent

ROWS = 5
"""Most rows of each table."""
LONG = 280
"""Most characters of the line that names ops of unknown cost."""
_FIGURES = ("peak_bytes", "flops", "parameters")
_TIMES = (("cost", "step_ns"), ("time", "step_ns"), ("cost", "op_sum_ns"))
"""Facts that are the time of the step; the first that there is counts."""
_WIDTHS = {"source": 0, "tensor": 96}
"""Least terminal widths of columns, where they differ from the section's."""
_MARKS = {"*": "*: several modules.", OUTSIDE_PATH: f"{OUTSIDE_PATH}: in no module."}
"""Names of modules that are none, and their meaning."""
_ADVICE = {"recompute_first": "recompute", "move_first": "offload"}
"""Advice on idle memory, and the table that it is the first row of."""


def of_sections(step: Step, sections: Sequence[Section]) -> Section:
    """Make the answer of a report that has these ``sections``."""
    known = {section.key: section for section in sections}
    advice = [note for note in (_block(known, "verdict", "dominant"), *_freed(known)) if isinstance(note, Note)]
    blocks: list[AnyBlock] = [
        *(_close(note) for note in _notes(known.get("verdict")) if note not in advice),
        *(Note(text=text, kind="advice") for text in [elsewhere(step)] if text),
        _figures(step, known),
        *_at_peak(step, known),
        *_time(step, known),
        *(
            replace(note, title="" if number else "What to do", text=f"{number + 1}. {note.text}", key="")
            for number, note in enumerate(advice)
        ),
        *_doubts(step, known),
    ]
    return Section("answer", "", blocks=tuple(blocks))


def _block(known: Mapping[str, Section], section: str, key: str) -> AnyBlock | None:
    found = known[section].blocks if section in known else ()
    return next((block for block in found if block.key == key), None)


def _freed(known: Mapping[str, Section]) -> list[AnyBlock | None]:
    """The advice on idle memory that frees something of the peak, most first."""
    freed: dict[str, int] = {}
    for note, key in _ADVICE.items():
        table = _block(known, "idle", key)
        if isinstance(table, Table) and (nbytes := table["at_peak_bytes"][0]):
            freed[note] = int(nbytes)
    return [_block(known, "idle", note) for note in sorted(freed, key=freed.__getitem__, reverse=True)]


def _notes(section: Section | None) -> list[Note]:
    return [block for block in (section.blocks if section else ()) if isinstance(block, Note)]


def _close(note: Note) -> Note:
    """``note``, with no empty line between it and the verdict."""
    return replace(note, kind="advice") if note.kind == "remark" else note


def _cut(step: Step, table: Table, **changes: Any) -> Table:
    """The first rows of ``table``."""
    most, columns = min(ROWS, step.top), []
    for one in table.columns:
        cells = {name: getattr(one, name)[:most] for name in ("values", "before", "after")}
        columns.append(replace(one, at_width=_WIDTHS.get(one.key, one.at_width), **cells))
    return replace(table, columns=tuple(columns), top=most, only="", leads_to="", **changes)


def _figures(step: Step, known: Mapping[str, Section]) -> Facts:
    """Peak memory, time, FLOPs and parameters."""
    facts = {
        (section.key, fact.key): fact
        for section in known.values()
        for block in section.blocks
        if isinstance(block, Facts)
        for fact in block.rows
    }
    why = "unknown: no durations are known" if step.card is None else step.card.why
    time = next((facts[place] for place in _TIMES if place in facts), Fact("step_ns", "Time", None, "ns", why))
    peak, *others = (facts["cost", key] for key in _FIGURES if ("cost", key) in facts)
    label = "Time of the ops" if time.key == "op_sum_ns" else "Time"
    return Facts(rows=(peak, replace(time, label=label), *others))


def _at_peak(step: Step, known: Mapping[str, Section]) -> Iterator[Table]:
    """The roles and the largest tensors that are resident at the peak."""
    roles, tensors = (_block(known, "memory", key) for key in ("roles", "tensors"))
    if isinstance(roles, Table) and isinstance(tensors, Table) and len(tensors):
        shares = (
            f"{str(role).replace('_', ' ')} {format_percent(float(share))}"
            for role, share in zip(roles["role"], roles["share"], strict=True)
            if share is not None
        )
        title, note = "Memory at the peak", f"by role: {', '.join(islice(shares, ROWS))}"
        yield _cut(step, tensors, title=title, remark=roles.remark, note=note)


def _time(step: Step, known: Mapping[str, Section]) -> Iterator[Table]:
    """The ops that take most of the time, or without durations the most FLOPs."""
    if not len(step.graph):
        return
    if step.durations is not None:
        whole = format_ns(sum(ns * op.trips for ns, op in zip(step.durations.ns, step.graph, strict=True)))
        legend = _block(known, "cost", "legend")
        made = _cut(step, costly(step, step.durations), title="What takes the time")
        marks = (meaning for mark, meaning in _MARKS.items() if mark in made["module"])
        note = " ".join([*([legend.text] if isinstance(legend, Note) else []), *marks])
        yield replace(made, remark=f"of the ops by themselves, {whole} in sum", note=note)
    else:
        yield _cut(step, known["ops"].table("groups"), title="What takes the FLOPs")


def _doubts(step: Step, known: Mapping[str, Section]) -> Iterator[Note]:
    """Notes on all that is unknown, not counted or assumed."""
    notes = _notes(known["cost"])
    for note in notes:
        if note.kind != "assumption" and note.key != "legend":
            yield replace(note, text=shorten(note.text, LONG, placeholder=" ..."))
    yield from (note for note in _notes(known.get("time")) if note.kind == "warning")
    if step.durations is not None and (count := _untimed(step.durations)):
        text = f"~ the time of {count:,} op{'s' * (count > 1)} is unknown, and a stand-in counts for it"
        yield Note(text=text, kind="coverage")
    yield from brief(step.graph, [note.text for note in notes if note.kind == "assumption"])


def _untimed(durations: Durations) -> int:
    """Count the ops that no rule prices or that could not be measured."""
    return len(durations.measurement.stand_ins) if durations.measurement is not None else durations.unknown
