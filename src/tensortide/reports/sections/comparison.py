"""Sections of a comparison of steps: the cause, metrics beside each other, and where the difference is."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tensortide.metrics.comparison import Pair
from tensortide.metrics.differences.compared import Compared
from tensortide.metrics.differences.headline import headline, ops_without_rule
from tensortide.metrics.differences.limits import Exceeded
from tensortide.metrics.differences.step import StepDifference
from tensortide.metrics.registry import default_registry
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.pictures import Curve, Series
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import comparison_modules, comparison_ops, comparison_peak
from tensortide.reports.sections.comparison_columns import signed_text
from tensortide.units import format_bytes

__all__ = ["SHOWN", "document", "summary"]

SHOWN = (
    "flops",
    "recomputed_flops",
    "bytes",
    "step_peak",
    "saved_activations",
    "total_params",
    "model_size",
    "ops",
    "step_time",
    "utilization",
)
"""Metrics that text shows, where a side has them, before those beyond the default set; the page has all."""
_BETTER = {"lower": "smaller is better", "higher": "larger is better", "": ""}


def document(found: Compared) -> Document:
    """Make the Document: what changed and the metrics first, then for each other where the difference is."""
    several = len(found.others) > 1
    sections = [summary(found)]
    for number, step in enumerate(found.steps):
        if step is not None:
            sections += _places(found, step, f"_{found.others[number].letter.lower()}" if several else "")
    sources = {one.side.durations.source for one in found.entrants if one.side and one.side.durations}
    lines = [
        f"{one.letter}{' (reference)' if one is found.base else ''}: {_described(found, place, sources)}"
        for place, one in enumerate(found.entrants)
    ]
    if len(sources) == 1:
        lines.append(f"time: {min(sources)}")
    title = " and ".join(dict.fromkeys(one.name or one.letter for one in found.entrants))
    return Document(title=f"{title} compared", subtitle=tuple(lines), sections=tuple(sections))


def _described(found: Compared, place: int, sources: Collection[str]) -> str:
    """Describe one of the steps: its name, its settings that the others do not share, its times."""
    one = found.entrants[place]
    settings = [other.status.of.get("hyperparameters", {}) for other in found.entrants]
    shared = {key for key, value in settings[0].items() if all(key in each and each[key] == value for each in settings)}
    own = "  ".join(f"{key}={value}" for key, value in settings[place].items() if key not in shared)
    parts = [one.name, own]
    if one.side is None:
        parts.append("saved metrics")
    elif one.side.durations is not None and len(sources) > 1:
        parts.append(f"time: {one.side.durations.source}")
    return "; ".join(filter(None, parts))


# -- what changed -----------------------------------------------------------------------------------


def summary(found: Compared) -> Section:
    """Make the section with the cause, limits that are exceeded, and metrics."""
    blocks: list[AnyBlock] = []
    for other, step in zip(found.others, found.steps, strict=True):
        before = f"{found.base.letter} → {other.letter}: " if len(found.others) > 1 else ""
        if step is not None:
            first, *more = headline(step)
            blocks.append(Note(text=before + first, kind="verdict"))
            blocks += (Note(text=text, kind="advice") for text in more)
    blocks += _limits(found)
    blocks.append(_metrics(found, key="metrics", only="text"))
    blocks.append(_metrics(found, key="all_metrics", only="page"))
    for step in found.steps:
        if step is not None and (text := ops_without_rule(step)):
            blocks.append(Note(text=text, kind="warning"))
    return Section("comparison", "What changed", blocks=tuple(blocks))


def _limits(found: Compared) -> Iterator[Note]:
    """State every limit that is exceeded, and by how much."""
    for one in found.exceeded:
        yield Note(text=exceeded_text(found, one), kind="failure")
    if found.limits and not found.exceeded:
        texts = ", ".join(limit.text for limit in found.limits)
        yield Note(
            text=f"Within {'all thresholds' if len(found.limits) > 1 else 'the threshold'}: {texts}", kind="advice"
        )


def exceeded_text(found: Compared, one: Exceeded) -> str:
    """Say which limit is exceeded, by which step and by how much."""
    metric, numbers = one.pair.metric, one.pair.numbers
    assert numbers is not None
    if one.undecided:
        return f"Cannot tell {one.limit.text}: {metric.title} leaves out ops without a cost rule (count --missing)"
    over = abs(numbers[1] - one.allowed)
    texts = [value_text(value, metric.unit) for value in (*numbers, over)]
    limit, letter = one.limit.text, found.others[one.other].letter
    side = "below" if metric.direction == "higher" else "over"
    change = f"{metric.title} {texts[0]} → {texts[1]} ({one.pair.words}) in {letter}"
    return f"Exceeded {limit}: {change}, {texts[2]} {side} the limit"


def _metrics(found: Compared, *, key: str, only: str) -> Table:
    """One row per metric, a column per step; beside each other the change in words. Values are text: units differ."""
    names = [pair.metric.name for pair in found.metrics.pairs(0)]
    rows = [[found.metrics.pair(name, other) for other in range(len(found.others))] for name in names]
    known = {pairs[0].metric.name: pairs for pairs in rows}
    rows = [known[name] for name in SHOWN if name in known]
    usual = default_registry() if only == "text" else ()
    rows += (pairs for name, pairs in known.items() if name not in SHOWN and name not in usual)
    rows = [pairs for pairs in rows if any(pair.numbers is not None and any(pair.numbers) for pair in pairs)]
    first = [pairs[0] for pairs in rows]
    columns = [
        Column("metric", "Metric", "text", tuple(pair.metric.title for pair in first)),
        Column("reference", found.base.letter, "number", tuple(_value(pair, 0) for pair in first)),
        Column("reference_value", "", "number", tuple(_number(pair, 0) for pair in first), data=True),
    ]
    wide = len(found.others) == 1
    for number, other in enumerate(found.others):
        pairs, tail = [row[number] for row in rows], f"_{other.letter.lower()}"
        columns += [
            Column(f"value{tail}", other.letter, "number", tuple(_value(pair, 1) for pair in pairs)),
            Column(
                f"difference{tail}", "difference", "number", tuple(map(_difference, pairs)), at_width=0 if wide else 120
            ),
            Column(f"words{tail}", "change", "text", tuple(pair.words for pair in pairs)),
            Column(f"verdict{tail}", "", "text", tuple(_verdict(pair) for pair in pairs), at_width=0 if wide else 110),
            Column(f"number{tail}", "", "number", tuple(_number(pair, 1) for pair in pairs), data=True),
            Column(f"change{tail}", "", "change", tuple(pair.change for pair in pairs), data=True),
        ]
    better = tuple(_BETTER[pair.metric.direction] for pair in first)
    columns += [
        Column("direction", "", "text", better, at_width=100 if wide else 140, dim=True),
        Column("name", "", "text", tuple(pair.metric.name for pair in first), data=True),
        Column("unit", "", "text", tuple(pair.metric.unit for pair in first), data=True),
    ]
    return Table(key=key, columns=tuple(columns), only="text" if only == "text" else "page")


def _number(pair: Pair, side: int) -> int | float | None:
    entry = (pair.reference, pair.other)[side]
    return None if entry is None else entry.number


def _value(pair: Pair, side: int) -> str:
    """Print a value; a cost that leaves out ops without a rule is a lower bound."""
    value = _number(pair, side)
    return "-" if value is None else ">= " * pair.bounds[side] + value_text(value, pair.metric.unit)


def _difference(pair: Pair) -> str:
    return "-" if pair.difference is None else signed_text(pair.difference, pair.metric.unit)


def _verdict(pair: Pair) -> str:
    return pair.verdict if pair.verdict in ("better", "worse") else ""


# -- where ------------------------------------------------------------------------------------------


def _places(found: Compared, step: StepDifference, tail: str) -> Iterator[Section]:
    """Make the sections that say where one step differs from the reference; none if nothing does."""
    made = (
        comparison_modules.section(step, found.top, found.depth, tail),
        comparison_ops.section(step, found.top, tail),
        comparison_peak.section(step, found.top, tail),
        _over_time(step, tail),
    )
    return (section for section in made if section is not None)


def _over_time(step: StepDifference, tail: str) -> Section | None:
    """Draw the memory of both over one axis."""
    curves, (one, other) = step.curves, step.letters
    if curves is None:
        return None
    peaks = ", ".join(
        f"{letter} peaks at {format_bytes(side.memory.peak_bytes)} in {side.phases[side.peak_op]}"
        for letter, side in zip(step.letters, (step.a, step.b), strict=True)
    )
    axis = "over time" if curves.unit == "ns" else f"over the ops of {one}, those of {other} spread over as much"
    curve = Curve(
        key="resident",
        x=curves.x,
        x_unit=curves.unit,
        ops=curves.ops,
        stack=(Series("a", one, curves.a),),
        lines=(Series("b", other, curves.b),),
    )
    return Section(f"over_time{tail}", f"Memory of {one} and {other}", f"{axis}; {peaks}", (curve,), folded=True)
