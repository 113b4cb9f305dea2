"""Section ``metrics`` of a comparison: every metric of a reference and of others, with the change in words."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.metrics.comparison import Comparison, Pair
from tensortide.metrics.metric import Missing
from tensortide.metrics.status import Entry
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.metrics import ordered

__all__ = ["document", "metrics_table", "of_comparison"]

_WORDS = {"lower": "smaller is better", "higher": "larger is better", "": ""}


def document(found: Comparison) -> Document:
    """Show the comparison alone."""
    others = ", ".join(status.name for status in found.others)
    return of_comparison(found).document(f"{found.reference.name} and {others}")


def of_comparison(found: Comparison) -> Section:
    """Make the section: a table for each other, and what cannot be compared."""
    blocks: list[AnyBlock] = []
    for number, status in enumerate(found.others):
        blocks += [metrics_table(found, number), *_reasons(found, number, status.name)]
    return Section("metrics", "Metrics", blocks=tuple(blocks))


def metrics_table(found: Comparison, number: int = 0) -> Table:
    """One row per metric that both have: values, change in words, which is better. Values are text, as units differ."""
    pairs = _sorted(found, number)
    rows = [pair for pair in pairs if pair.numbers is not None and any(pair.numbers)]
    reference, other = found.reference.name, found.others[number].name
    texts = [tuple(_text(pair, side) for pair in rows) for side in (0, 1)]
    changes = tuple(pair.change for pair in rows)
    columns = (
        Column("metric", "Metric", "text", tuple(pair.metric.title for pair in rows)),
        Column("reference", reference, "number", texts[0]),
        Column("other", other, "number", texts[1]),
        Column("words", "change", "text", tuple(pair.words for pair in rows)),
        Column("verdict", "", "text", tuple(_verdict(pair) for pair in rows), at_width=80),
        Column("direction", "", "text", tuple(_WORDS[pair.metric.direction] for pair in rows), at_width=110, dim=True),
        Column("name", "", "text", tuple(pair.metric.name for pair in rows), data=True),
        Column("unit", "", "text", tuple(pair.metric.unit for pair in rows), data=True),
        Column("reference_value", "", "number", tuple(_number(pair, 0) for pair in rows), data=True),
        Column("other_value", "", "number", tuple(_number(pair, 1) for pair in rows), data=True),
        Column("change", "", "change", changes, data=True),
    )
    return Table(key=f"metrics_{number}" if number else "metrics", columns=columns, heads=1)


def _sorted(found: Comparison, number: int) -> list[Pair]:
    by_name = {pair.metric.name: pair for pair in found.pairs(number)}
    return [by_name[name] for name in ordered(by_name)]


def _verdict(pair: Pair) -> str:
    return "" if pair.verdict in ("equal", "different") else pair.verdict


def _number(pair: Pair, side: int) -> float | int | None:
    return None if pair.numbers is None else pair.numbers[side]


def _text(pair: Pair, side: int) -> str:
    value = _number(pair, side)
    return "-" if value is None else value_text(value, pair.metric.unit)


def _reasons(found: Comparison, number: int, name: str) -> Iterator[Note]:
    """Say which metrics cannot be compared, those with one reason together; not those that neither has."""
    by_reason: dict[str, list[str]] = {}
    for pair in _sorted(found, number):
        if pair.numbers is None and not (_is_missing(pair.reference) and _is_missing(pair.other)):
            by_reason.setdefault(pair.words, []).append(pair.metric.name)
    for reason, names in by_reason.items():
        yield Note(text=f"{name}, not compared: {', '.join(names)} ({reason})", kind="coverage")


def _is_missing(entry: Entry | None) -> bool:
    return entry is None or isinstance(entry.value, Missing)
