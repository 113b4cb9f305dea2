"""Section ``checks``: assertions with value, limit, margin and verdict; what failed, why, and the modules that grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tensortide.metrics.checks.checking import Accepted, Checked
from tensortide.metrics.checks.verdicts import Growth, Verdict
from tensortide.reports.blocks import AnyBlock, Column, Document, Facts, Note, Section, Table, data_facts
from tensortide.reports.names import pattern, shared
from tensortide.reports.render.values import value_text
from tensortide.units import format_bytes

__all__ = ["document", "documents", "failed", "section", "tally", "told"]

WORDS = {"holds": "holds", "fails": "FAILS", "unknown": "UNKNOWN"}
MODULES = 10
"""Modules that text lists of those that grew."""


def document(found: Checked) -> Document:
    """Show one checked step."""
    settings = found.of.hyperparameters
    return section(found).document(found.name, _origin(found), settings=dict(settings))


def documents(found: Sequence[Checked], errors: Sequence[tuple[str, str]] = ()) -> Document:
    """Show several checks, and those that could not be tried, with their errors."""
    if len(found) == 1 and not errors:
        return document(found[0])
    outcomes = Counter(one.outcome for one in found)
    parts = [f"{outcomes['holds']} of {len(found) + len(errors)} hold"]
    parts += [f"{outcomes['fails']} fail{'s' * (outcomes['fails'] == 1)}"] * bool(outcomes["fails"])
    parts += [f"{outcomes['unknown']} undecided"] * bool(outcomes["unknown"])
    parts += [f"{len(errors)} could not be tried"] * bool(errors)
    sections = [section(one, key=f"check_{number}", title=one.name) for number, one in enumerate(found)]
    sections += [failed(name, text, f"error_{number}") for number, (name, text) in enumerate(errors)]
    return Document(title="checks", subtitle=(", ".join(parts),), sections=tuple(sections))


def failed(name: str, text: str, key: str) -> Section:
    """Show a check that could not be tried."""
    note = Note(text=f"could not be checked: {text}", kind="failure")
    return Section(key, name, blocks=(note, *data_rows(name, False)))


def data_rows(name: str, holds: bool) -> tuple[AnyBlock, ...]:
    """Facts for data alone."""
    return (Facts(rows=(*data_facts("text", check=name), *data_facts("flag", holds=holds))),)


def section(found: Checked, *, key: str = "checks", title: str = "") -> Section:
    """Make the section: the verdict, the table, and for every failure the reason and where it grew."""
    verdict = Note(text=tally(found), kind="verdict" if found.holds else "failure")
    after = [*_reasons(found), *_growths(found), *_accepted(found.accepted)]
    after += [Note(text=text) for text in found.remarks]
    about = _origin(found) if title else ""
    return Section(key, title, about, (verdict, _table(found), *after, *data_rows(found.name, found.holds)))


def tally(found: Checked) -> str:
    """Say how many assertions hold."""
    count, failures = len(found.verdicts), found.failures
    if not failures:
        return "the assertion holds" if count == 1 else f"all {count} assertions hold"
    unknown = sum(one.outcome == "unknown" for one in failures)
    if count == 1:
        return "the assertion is undecided, which is no pass" if unknown else "the assertion fails"
    parts = [f"{len(failures) - unknown} of {count} assertions failed"] if len(failures) > unknown else []
    parts += [f"{unknown} of {count} undecided, which is no pass"] * bool(unknown)
    return "; ".join(parts)


def _origin(found: Checked) -> str:
    name = f"{found.of.workload} " if found.of.workload != found.name else ""
    places = " and ".join(f"on {place}" for place in dict.fromkeys(one.place for one in found.verdicts))
    return name + places + (f"; {found.framework}" if found.framework else "")


def _table(found: Checked) -> Table:
    """Show an assertion in a row. Values are text, because units differ by row; data has them raw."""
    rows = found.verdicts
    columns = (
        Column("assertion", "Assertion", "text", tuple(one.text for one in rows), fold=True),
        Column("place", "Captured for", "text", tuple(one.place for one in rows), fold=True),
        Column("shown", "Value", "number", tuple(_shown(one, one.value) for one in rows)),
        Column("limit", "Limit", "number", tuple(_limit(one) for one in rows)),
        Column("room", "Margin", "number", tuple(_margin(one) for one in rows)),
        Column("verdict", "Verdict", "text", tuple(WORDS[one.outcome] for one in rows)),
        Column("outcome", "", "text", tuple(one.outcome for one in rows), data=True),
        Column("unit", "", "text", tuple(one.unit for one in rows), data=True),
        Column("value", "", "number", tuple(one.value for one in rows), data=True),
        Column("limit_value", "", "number", tuple(one.limit for one in rows), data=True),
        Column("baseline_value", "", "number", tuple(one.baseline for one in rows), data=True),
        Column("margin", "", "change", tuple(one.margin for one in rows), data=True),
        Column("reason", "", "text", tuple(one.reason for one in rows), data=True),
        Column("remark", "", "text", tuple(one.remark for one in rows), data=True),
        Column("device", "", "text", tuple(one.device for one in rows), data=True),
        Column("machine", "", "text", tuple(one.machine for one in rows), data=True),
    )
    return Table(key="assertions", columns=columns)


def _shown(one: Verdict, value: int | float | None) -> str:
    return "-" if value is None else value_text(value, one.unit)


def _limit(one: Verdict) -> str:
    if one.limit is None or not one.relation:
        return "none" if one.limit is not None else "-"
    value, limit = _shown(one, one.value), _shown(one, one.limit)
    if value == limit and one.value != one.limit:  # rounding must not hide what the verdict is about
        limit = f"{one.limit:,.15g}" + " B" * (one.unit == "bytes")
    return f"{one.relation} {limit}"


def _margin(one: Verdict) -> str:
    """The part of the limit that is left; how many times over it the value is where that is plainer."""
    if one.margin is None or one.outcome == "unknown" or one.relation == "==":
        return "-"
    return value_text(one.margin, "change") if one.margin > -1 else f"{1 - one.margin:,.4g}x the limit"


def _reasons(found: Checked) -> Iterator[AnyBlock]:
    for one in found.verdicts:
        if one.outcome != "holds":
            yield Note(text=told(one), kind="failure")
        if one.remark:
            yield Note(text=f"{one.text}: {one.remark}")


def told(one: Verdict) -> str:
    """Say in a line why an assertion is no pass."""
    value = f"{_shown(one, one.value)}, " if one.value is not None and one.relation else ""
    return f"{one.text}: {value}{one.reason or _exceeds(one)}"


def _exceeds(one: Verdict) -> str:
    assert one.value is not None
    assert one.limit is not None
    by = one.value - one.limit
    amount = _difference(by, one.unit)
    text = f"{amount.removeprefix('+').removeprefix('-')} {'above' if by > 0 else 'below'} the limit"
    if not by:
        text = "equal to the limit"
    if one.baseline is not None and one.baseline:
        change = 100 * (one.value / one.baseline - 1)
        text += f"; {change:+z.2f} % against the baseline's {_shown(one, one.baseline)}"
    return text


def _difference(by: int | float, unit: str) -> str:
    text = format_bytes(abs(by)) if unit == "bytes" else value_text(abs(by), unit)  # type: ignore[arg-type]  # a metric's
    return ("-" if by < 0 else "+") + text


def _growths(found: Checked) -> Iterator[Table]:
    """Yield the modules of each metric that grew; assertions over one share them. Text folds those of equal figures."""
    seen = dict.fromkeys((one.growth, one.place) for one in found.verdicts if one.growth is not None)
    several = len({one.place for one in found.verdicts}) > 1
    for number, (growth, place) in enumerate(seen):
        key = f"{growth.metric}_{number}" if number else growth.metric
        title = growth.title + f" on {place}" * several
        yield _growth(growth, title, _folded(growth.rows), f"folded_{key}", "text")
        yield _growth(growth, title, [_Row(*row) for row in growth.rows], f"grown_{key}", "page")


class _Row(NamedTuple):
    """Figures of a module before and now, or the sums of several ``modules``."""

    path: str
    before: int | None
    now: int
    modules: int = 1


def _folded(rows: Sequence[tuple[str, int | None, int]]) -> list[_Row]:
    """Fold modules with equal figures whose paths differ in numbers alone; the largest sum first."""
    groups: dict[tuple[str, int | None, int], list[str]] = {}
    for path, before, now in rows:
        groups.setdefault((pattern(path), before, now), []).append(path)
    folded = [
        _Row(shared(paths), None if before is None else before * len(paths), now * len(paths), len(paths))
        for (_, before, now), paths in groups.items()
    ]
    return sorted(folded, key=lambda row: -abs(row.now - (row.before or 0)))


def _growth(growth: Growth, what: str, rows: Sequence[_Row], key: str, only: Literal["text", "page"]) -> Table:
    several = tuple(f" x{row.modules}" if row.modules > 1 else "" for row in rows)
    names = Column("module", "Module", "path", tuple(row.path for row in rows), fold=True, after=several)
    now = Column("now", "now", growth.unit, tuple(row.now for row in rows))
    rest = f"and {len(rows) - MODULES} more rows"
    if rows[0].before is None:
        title = f"{what}: largest modules"
        return Table(key=key, title=title, columns=(names, now), top=MODULES, rest=rest, only=only)
    differences = tuple(row.now - (row.before or 0) for row in rows)
    rest += f": {_difference(sum(differences[MODULES:]), growth.unit)}"
    columns = (
        names,
        Column("before", "baseline", growth.unit, tuple(row.before for row in rows)),
        now,
        Column("change", "difference", "number", tuple(_difference(by, growth.unit) for by in differences)),
        Column("difference", "", growth.unit, differences, data=True),
    )
    total = f"own amounts; differences add up to {_difference(sum(differences), growth.unit)}"
    title = f"{what}: modules that differ"
    return Table(key=key, title=title, remark=total, columns=columns, top=MODULES, rest=rest, only=only)


def _accepted(accepted: Accepted | None) -> Iterator[AnyBlock]:
    if accepted is None:
        return
    if accepted.before is None:
        new = "a new baseline" if not accepted.reason else f"in place of what could not be compared ({accepted.reason})"
        yield Note(text=f"accepted {accepted.path}: {new}", kind="verdict")
        return
    if not accepted.changes and not accepted.modules:
        yield Note(text=f"accepted {accepted.path}: nothing changed", kind="verdict")
        return
    modules = f"; {len(accepted.modules)} modules differ" if accepted.modules else ""
    yield Note(text=f"accepted {accepted.path}: {len(accepted.changes)} metrics differ{modules}", kind="verdict")
    rows = accepted.changes
    change = tuple(b / a - 1 if a and b is not None else None for _, a, b in rows)
    columns = (
        Column("metric", "Metric", "text", tuple(name for name, _, _ in rows), fold=True),
        Column("before", "before", "number", tuple(before for _, before, _ in rows)),
        Column("now", "now", "number", tuple(now for _, _, now in rows)),
        Column("change", "change", "change", change),
    )
    yield Table(key="accepted", title="Accepted", columns=columns)
