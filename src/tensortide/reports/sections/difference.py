"""Section ``difference``: two Timelines of a step side by side, or the figures of one; ``against``: a predicted step
beside the measured one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tensortide.differences import Node, Pair, diff, flat
from tensortide.replays.remat import Simulation
from tensortide.reports import of_differences
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.of_records import facts
from tensortide.reports.pictures import Curve, Series
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.predicted_times import ends_ns, interval_text
from tensortide.timelines import Difference, KindTime, Timeline, TimelineFigures, mean_times
from tensortide.timelines.step import StepTimeline
from tensortide.timing.durations import Sample

NAMES = ("predicted", "measured")
MOST_KINDS = 20
"""Kinds of op that are listed."""
POINTS = 480
"""Most entries of the curve."""


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
        graph, made = found.recorded, Section("timeline", "", blocks=(facts(found.figures), curve))
    else:
        figures = facts(found.figures, title=f"{found.policy}: {found.status}")
        graph, made = found.schedule.graph, Section("simulation", "", blocks=(figures,))
    return made.document(graph.meta.workload, settings=graph.meta.hyperparameters)


def section(
    found: Difference | None,
    a: TimelineFigures,
    b: TimelineFigures,
    notes: Iterable[Note] = (),
    times: tuple[Node[KindTime], Node[KindTime]] | None = None,
) -> Section:
    """The section of ``found``; ``a`` and ``b`` are the figures to show, such as means over several steps, and
    ``times`` the time of each kind of op in both."""
    figures = of_differences.of_facts(facts(a).rows, facts(b).rows, NAMES, title="One step")
    blocks: list[AnyBlock] = [figures]
    if times is not None:
        remark = "recomputation included; largest difference first"
        blocks.append(_kinds(_by_size(*times), "a.ns", "b.ns", "difference.ns", remark=remark, sides=NAMES))
    blocks += () if found is None else _curve(found)
    return Section("difference", "Predicted and measured", blocks=(*blocks, *notes))


def _by_size(a: Node[KindTime], b: Node[KindTime]) -> list[Pair[KindTime]]:
    """The kinds of op, that of the largest difference first; they add up to the time of own and recomputed ops."""
    return sorted(diff(a, b).children, key=lambda pair: -abs(pair.difference.ns))


def _kinds(rows: Sequence[Pair[KindTime]], *names: str | Column, remark: str, **sides: Any) -> Table:
    op = Column("op", "Op", "name", tuple(pair.label for pair in rows), fold=True)
    rest = f"and {len(rows) - MOST_KINDS} more kinds of op"
    sides |= {"title": "By op", "remark": remark, "top": MOST_KINDS, "rest": rest}
    return of_differences.table(KindTime, rows, op, *names, key="kinds", **sides)


def _curve(found: Difference) -> Iterator[Curve]:
    """Bytes resident during the runs that both have, over the op numbers of the first."""
    count = len(found.a_run)
    if not count:
        return
    at = [count * i // POINTS for i in range(POINTS)] if count > POINTS else list(range(count))
    a = Series("a", NAMES[0], tuple(found.a.resident[found.a_run][at].tolist()))
    b = Series("b", NAMES[1], tuple(found.b.resident[found.b_run][at].tolist()))
    yield Curve(key="resident", title="Resident bytes", x=(*at, count), x_unit="op", stack=(a,), lines=(b,))


# -- predicted for a machine ------------------------------------------------------------------------


def against(predicted: StepTimeline, measured: Timeline, machine: str, step: Sample | None) -> Section:
    """Show the step ``predicted`` for ``machine`` and the same ``measured``, of which ``step`` is the whole.

    Differences are predicted less measured, shares of the measured time.
    """
    times, names = (mean_times([measured]), mean_times([predicted])), NAMES[::-1]
    before, after, estimates = {"Sum of op times": times[0].whole}, {"Sum of op times": times[1].whole}, [predicted.ops]
    if step is not None:
        before = {"Step": KindTime(step.median_ns), **before}
        after = {"Step": KindTime(round(predicted.estimate.time_ns)), **after}
        estimates.insert(0, predicted.estimate)
    rows, kinds = diff(flat(before, KindTime()), flat(after, KindTime())).children, _by_size(*times)
    first, ends = rows[0].values("ns"), [ends_ns(one) for one in estimates]
    text = f"{rows[0].name}: {value_text(first.b, 'ns')} predicted for {machine}, {value_text(first.a, 'ns')} measured"
    text += "" if first.change is None else f": the prediction is off by {100 * first.change:+z.1f} %"
    figure = Column("figure", "Figure", "text", tuple(pair.name for pair in rows))
    whole = of_differences.table(
        *(KindTime, rows, figure, "b.ns", "a.ns", _off(rows)),
        Column("interval", "80 % interval", "text", tuple(map(interval_text, estimates))),
        Column("low_ns", "", "ns", tuple(low for low, _ in ends), data=True),
        Column("high_ns", "", "ns", tuple(high for _, high in ends), data=True),
        key="whole",
        sides=names,
        keys=names,
    )
    remark = "predicted less measured; largest difference first"
    by_op = _kinds(kinds, "b.ns", "a.ns", "difference.ns", _off(kinds), remark=remark, sides=names, keys=names)
    blocks: tuple[AnyBlock, ...] = (Note(text=text, kind="verdict"), whole, by_op)
    return Section("against", f"Predicted for {machine} and measured", blocks=blocks)


def _off(rows: Sequence[Pair[KindTime]]) -> Column:
    return of_differences.columns(KindTime, rows, "change.ns as error_change", label="off by")[0]
