"""Section ``difference``: the facts of two results side by side; one Timeline, or two (predicted and measured)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensortide.replays.remat import Simulation
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, UnitName
from tensortide.reports.pictures import Curve, Series
from tensortide.reports.render.values import fact_text
from tensortide.timelines import Difference, Figures, Timeline, mean_times

__all__ = ["document", "facts_of", "facts_table", "figures_table", "section"]

ROWS: tuple[tuple[str, str, UnitName], ...] = (
    ("peak_bytes", "Peak", "bytes"),
    ("evictions", "Evictions", "count"),
    ("recomputations", "Recomputed ops", "count"),
    ("base_ns", "Time of the step's own ops", "ns"),
    ("recompute_ns", "Time of recomputed ops", "ns"),
    ("slowdown", "Slowdown", "factor"),
)
NAMES = ("predicted", "measured")
MOST_KINDS = 20
"""Kinds of op that are listed."""
POINTS = 480
"""Most entries of the curve."""


def facts_of(section: Section) -> list[Fact]:
    """List the facts of ``section`` that have a label and a number."""
    rows = [fact for block in section.blocks if isinstance(block, Facts) for fact in block.rows]
    return [fact for fact in rows if fact.label and isinstance(fact.value, int | float)]


def facts_table(
    a: Iterable[Fact], b: Iterable[Fact], names: tuple[str, str] = ("A", "B"), *, key: str = "figures", title: str = ""
) -> Table:
    """Show the facts that both have, a row each. The columns are text, because units differ by row."""
    others = {fact.key: fact for fact in b}
    pairs = [(fact, others[fact.key]) for fact in a if fact.key in others]
    x, y = (tuple(v if isinstance(v := pair[i].value, int | float) else None for pair in pairs) for i in (0, 1))
    changes = tuple(q / p - 1 if p and q is not None else None for p, q in zip(x, y, strict=True))
    columns = (
        Column("figure", "Figure", "text", tuple(fact.label for fact, _ in pairs), fold=True),
        Column("a", names[0], "number", tuple(fact_text(fact) for fact, _ in pairs)),
        Column("b", names[1], "number", tuple(fact_text(fact) for _, fact in pairs)),
        Column("change", "difference", "change", changes),
        Column("key", "", "text", tuple(fact.key for fact, _ in pairs), data=True),
        Column("a_value", "", "number", x, data=True),
        Column("b_value", "", "number", y, data=True),
    )
    return Table(key=key, title=title, columns=columns, depth=tuple(fact.level for fact, _ in pairs))


def document(found: Difference | Timeline | Simulation) -> Document:
    """Show the figures of both Timelines, the ops whose time differs most, and the bytes resident over the step; of one
    Timeline alone its figures and bytes, of a simulated run its figures."""
    if isinstance(found, Difference):
        timed, graph = found.a.timed and found.b.timed, found.a.recorded
        times = (mean_times([found.a]), mean_times([found.b])) if timed else None
        made = section(found, found.a.figures, found.b.figures, times=times)
    elif isinstance(found, Timeline):
        resident = (Series("resident", "resident", tuple(found.resident.tolist())),)
        curve = Curve(key="resident", x=tuple(range(len(found.run_op) + 1)), x_unit="op", stack=resident)
        graph, made = found.recorded, Section("timeline", "", blocks=(Facts(rows=_facts(found.figures)), curve))
    else:
        facts = Facts(title=f"{found.policy}: {found.status}", rows=_facts(found.figures))
        graph, made = found.schedule.graph, Section("simulation", "", blocks=(facts,))
    return made.document(graph.meta.workload, settings=graph.meta.hyperparameters)


def section(
    found: Difference | None,
    a: Figures,
    b: Figures,
    notes: Iterable[Note] = (),
    times: tuple[Mapping[str, int], Mapping[str, int]] | None = None,
) -> Section:
    """The section of ``found``; ``a`` and ``b`` are the figures to show, such as means over several steps, and
    ``times`` the time of each kind of op in both."""
    curve: tuple[AnyBlock, ...] = () if found is None else tuple(_curve(found))
    kinds = () if times is None else (_kinds(*times),)
    return Section("difference", "Predicted and measured", blocks=(figures_table(a, b), *kinds, *curve, *notes))


def figures_table(a: Figures, b: Figures) -> Table:
    """Two Timelines in numbers: a row per figure."""
    return facts_table(_facts(a), _facts(b), NAMES, title="One step")


def _facts(figures: Figures) -> tuple[Fact, ...]:
    return tuple(Fact(key, label, getattr(figures, key), unit) for key, label, unit in ROWS)


def _kinds(first: Mapping[str, int], second: Mapping[str, int]) -> Table:
    """The kinds of op whose time differs most; rows add up to the time of own and recomputed ops."""
    sums = [(name, first.get(name, 0), second.get(name, 0)) for name in dict.fromkeys([*first, *second])]
    rows = sorted(sums, key=lambda row: -abs(row[2] - row[1]))
    columns = (
        Column("op", "Op", "name", tuple(name for name, _, _ in rows), fold=True),
        Column("a", NAMES[0], "ns", tuple(a for _, a, _ in rows)),
        Column("b", NAMES[1], "ns", tuple(b for _, _, b in rows)),
        Column("difference", "difference", "ns", tuple(b - a for _, a, b in rows)),
    )
    rest, remark = f"and {len(rows) - MOST_KINDS} more kinds of op", "recomputation included; largest difference first"
    return Table(key="kinds", title="By op", remark=remark, columns=columns, top=MOST_KINDS, rest=rest)


def _curve(found: Difference) -> Iterator[Curve]:
    """Bytes resident during the runs that both have, over the op numbers of the first."""
    count = len(found.a_run)
    if not count:
        return
    at = [count * i // POINTS for i in range(POINTS)] if count > POINTS else list(range(count))
    a = Series("a", NAMES[0], tuple(found.a.resident[found.a_run][at].tolist()))
    b = Series("b", NAMES[1], tuple(found.b.resident[found.b_run][at].tolist()))
    yield Curve(key="resident", title="Resident bytes", x=(*at, count), x_unit="op", stack=(a,), lines=(b,))
