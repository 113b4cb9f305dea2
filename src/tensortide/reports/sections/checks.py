"""Section ``checks``: assertions with value, limit, margin and verdict; what failed, why, and the modules that grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from tensortide.differences import Together, grouped, relative
from tensortide.graph.module_paths import as_one, pattern
from tensortide.measures.checks.baseline import Amount
from tensortide.measures.checks.checking import Accepted, Checked
from tensortide.measures.checks.verdicts import Growth, Verdict
from tensortide.reports import of_differences
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.of_differences import signed_text
from tensortide.reports.of_records import facts, table
from tensortide.reports.render.values import value_text
from tensortide.shown import Show
from tensortide.timelines.module_figures import ModuleFigures

MODULES = 10
NEAR = 0.01
"""Part of a limit within which a value that must be equal to it may be thought to be so."""
WORDS: dict[str, str] = {"holds": "holds", "fails": "FAILS", "unknown": "UNDECIDED"}
"""The verdict on each outcome."""
"""Modules that text lists of those that grew."""


class Row(NamedTuple):
    """An assertion in a row. Values are shown as text, because units differ by row; data has them raw as well."""

    one: Verdict
    value_text: Annotated[str, Show("Value", "number")]
    limit_text: Annotated[str, Show("Limit", "number")]
    margin_text: Annotated[str, Show("Margin", "number")]
    outcome_text: Annotated[str, Show("Verdict")]


def document(found: Checked) -> Document:
    """Show one checked step."""
    return section(found).document(found.name, _origin(found), settings=dict(found.of.hyperparameters))


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
    for number, (name, text) in enumerate(errors):
        note = Note(text=f"could not be checked: {text}", kind="failure")
        rows = (Fact("check", "", name, data=True), Fact("holds", "", False, "flag", data=True))
        sections.append(Section(f"error_{number}", name, blocks=(note, Facts(rows=rows))))
    return Document(title="Checks", subtitle=(", ".join(parts),), sections=tuple(sections))


def section(found: Checked, *, key: str = "checks", title: str = "") -> Section:
    """Make the section: the verdict, the table, and for every failure the reason and where it grew."""
    rows = [*map(_row, found.verdicts)]
    names = ("one.text as assertion", "one.place", "value_text", "limit_text", "margin_text", "outcome_text")
    raw = ("one.outcome", "one.unit", "one.value", "one.limit", "one.baseline", "one.margin")
    more = ("one.reason", "one.remark", "one.device", "one.machine")
    blocks: tuple[AnyBlock, ...] = (
        Note(text=_tally(found), kind="verdict" if found.holds else "failure"),
        table(Row, rows, *names, *raw, *more, key="assertions"),
        *_reasons(found),
        *_growths(found),
        *_accepted(found.accepted),
        *(Note(text=text) for text in found.remarks),
        facts(found, "name as check", "holds", data=True),
    )
    return Section(key, title, _origin(found) if title else "", blocks)


def _tally(found: Checked) -> str:
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


def _row(one: Verdict) -> Row:
    return Row(one, value_text(one.value, one.unit), _limit(one), _margin(one), WORDS[one.outcome])


def _limit(one: Verdict) -> str:
    if one.limit is None or not one.relation:
        return "none" if one.limit is not None else "-"
    limit = value_text(one.limit, one.unit)
    if value_text(one.value, one.unit) == limit and one.value != one.limit:  # rounding hides what the verdict is about
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
    value = f"{value_text(one.value, one.unit)}, " if one.value is not None and one.relation else ""
    return f"{one.text}: {value}{one.reason or _exceeds(one)}"


def _exceeds(one: Verdict) -> str:
    assert one.value is not None
    assert one.limit is not None
    by = one.value - one.limit
    text = f"{value_text(abs(by), one.unit)} {'above' if by > 0 else 'below'} the limit" if by else "equal to the limit"
    if one.relation == "==" and abs(by) <= NEAR * abs(one.limit):
        text += f" (== compares exactly: {one.value:,})"
    if (change := relative(one.baseline, one.value)) is not None:
        text += f"; {100 * change:+z.2f} % against the baseline's {value_text(one.baseline, one.unit)}"
    return text


# -- differences from the baseline ------------------------------------------------------------------


def _growths(found: Checked) -> Iterator[Table]:
    """Yield the modules of each metric that grew; assertions over one share them."""
    seen = {
        (one.growth.metric, one.place, tuple((pair.name, pair.own) for pair in one.growth.modules)): one.growth
        for one in found.verdicts
        if one.growth is not None
    }
    several = len({one.place for one in found.verdicts}) > 1
    for number, ((_, place, _), one) in enumerate(seen.items()):
        key, title = f"{one.metric}_{number}" if number else one.metric, one.title + f" on {place}" * several
        yield _growth(one, title, f"folded_{key}", "text")
        yield _growth(one, title, f"grown_{key}", "page")


def _growth(one: Growth, what: str, key: str, only: Literal["text", "page"]) -> Table:
    """Show the modules; text folds those of equal figures whose paths differ in numbers alone."""
    rows = [Together([pair]) for pair in one.modules]
    if only == "text":
        rows = grouped(one.modules, lambda pair: (pattern(pair.name), pair.values(one.amount)))
        rows.sort(key=lambda row: -abs(row.values(one.amount).difference))
    differences = [row.values(one.amount).difference for row in rows]
    compared, rest = one.compared, f"and {len(rows) - MODULES} more rows"
    return of_differences.table(
        ModuleFigures,
        rows,
        Column(
            *("path", "Module", "path", tuple(as_one([pair.name for pair in row.pairs]) for row in rows)),
            fold=True,
            after=tuple(f" x{row.count}" if row.count > 1 else "" for row in rows),
        ),
        Column("count", "", "count", tuple(row.count for row in rows), data=True),
        *(f"{part}.{one.amount}" for part in (("a", "b", "difference") if compared else ("b",))),
        key=key,
        sides=("baseline", "now"),
        keys=("before", "now"),
        title=f"{what}: {'modules that differ' if compared else 'largest modules'}",
        remark=f"own amounts; differences add up to {signed_text(sum(differences), one.unit)}" if compared else "",
        top=MODULES,
        rest=f"{rest}: {signed_text(sum(differences[MODULES:]), one.unit)}" if compared else rest,
        only=only,
    )


def _accepted(accepted: Accepted | None) -> Iterator[AnyBlock]:
    if accepted is None:
        return
    rows, modules = accepted.changes, len(accepted.modules)
    text = f"{len(rows)} metrics differ" + f"; {modules} modules differ" * bool(modules) if rows or modules else ""
    if accepted.before is None:
        text = f"in place of what could not be compared ({accepted.reason})" if accepted.reason else "a new baseline"
    yield Note(text=f"accepted {accepted.path}: {text or 'nothing changed'}", kind="verdict")
    if accepted.before is not None and text:
        names = Column("name", "Metric", "text", tuple(pair.name for pair in rows), fold=True)
        values = ("a.value as before", "b.value as now", "change.value as change")
        sides = ("before", "now")
        yield of_differences.table(Amount, rows, names, *values, key="accepted", sides=sides, title="Accepted")
