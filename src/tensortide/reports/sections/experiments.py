"""Sections of experiments: policies over a range of budgets, and over linear networks of growing length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from tensortide.plans.remat.policies import CELL_COLUMNS, CELL_ROWS
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table, UnitName
from tensortide.reports.of_records import column, table
from tensortide.reports.pictures import Axis, End, Limit, Points, Range, Scatter, SpanLane, Spans, with_one_look
from tensortide.reports.render.values import data_key
from tensortide.studies.remat.linear import RULES, chen, treeverse
from tensortide.studies.remat.results import Row, Run, Step, Study, Trial

if TYPE_CHECKING:
    from tensortide.replays.remat.simulation import Simulation

BEST = "^"
"""Mark of the least of what stands beside it: an asterisk would read as "optimal"."""
COMPAT = " By the rules of DTR's own simulator (--compat)."
BOUNDS = {"Chen et al., 2 sqrt n": chen, "Treeverse, log2 n": treeverse}
PARTS = dict(zip(CELL_COLUMNS, ("size and staleness", "size", "staleness", "neither"), strict=True))
"""Words for what the policies of an ablation weigh beside work."""
Curves: TypeAlias = Mapping[str, Sequence[Row]]


class Look(NamedTuple):
    """Way to show one kind of study: the title of its section, and its numbers in tables and pictures."""

    title: str
    unit: UnitName = "ratio"
    label: str = "time / step time"
    what: str = "Time divided by that without recomputation"


LOOKS = {
    "sweep": Look("Time against memory"),
    "ablation": Look("What each part of a policy is worth"),
    "banishing": Look("What is done with what the program drops"),
    "accesses": Look(
        "Storages looked at", "amount", "storages looked at", "Storages looked at in order to choose what to evict"
    ),
    "growth": Look("Recomputation as a network grows", "count", "recomputed ops"),
}


def document(study: Study) -> Document:
    """Show ``study``: for each panel a table and a picture, then every run as data."""
    look, grows = LOOKS[study.kind], study.kind == "growth"
    blocks: list[AnyBlock] = [] if grows else [steps_table(study.steps())]
    for panel, (name, step) in enumerate(zip(study.panels, study.steps(), strict=True)):
        curves = study.curves(panel)
        if grows:
            title = f"Budget {RULES[name][0]}"
            blocks += [_table(study, curves, f"budget_{panel}", title), _growth(curves, name, panel)]
        else:
            blocks += [_table(study, curves, f"budgets_{panel}", name), *_pictures(study, curves, step, panel)]
    blocks += [_runs(study), Note(text=_note(study))]
    made = Section("linear" if grows else study.kind, look.title, blocks=tuple(_framed(blocks)))
    of_steps = f"{look.title}: {', '.join(study.panels)}"
    return made.document("Recomputation in linear networks of n layers" if grows else of_steps)


def steps_table(steps: Sequence[Step]) -> Table:
    """Show what is known of steps beforehand."""
    note = (
        "Sum of op times and peak without a budget; constants: what nothing can recompute; one op: the most that one "
        "needs beside them."
    )
    names = ("ops", "device", "model_ns", "baseline_bytes", "constant_bytes", "bottleneck_bytes")
    sources = list(dict.fromkeys(step.durations for step in steps))
    durations = column(Step, steps, "durations", data=len(sources) == 1)
    if len(sources) == 1:  # said once, where a column of it would be as narrow as it is high
        note += f" Durations: {sources[0]}."
    return table(Step, steps, "name", *names, durations, "compat", key="steps", note=note)


# -- tables -----------------------------------------------------------------------------------------


def _table(study: Study, curves: Curves, key: str, title: str) -> Table:
    """Show budgets, or lengths of networks, down and policies across; the least of each row is marked."""
    rows = next(iter(curves.values()))
    at, budgets = tuple(row.at for row in rows), tuple(row.budget_bytes for row in rows)
    if study.kind == "growth":
        heads = Column("n", "n", "count", at), Column("budget", "budget", "count", budgets)
    else:
        heads = Column("ratio_share", "of peak", "share", at), Column("budget_bytes", "Budget", "bytes", budgets)
    across = zip(*curves.values(), strict=True)
    least = [min((row.number for row in each if row.number is not None), default=-1) for each in across]
    unit, columns = LOOKS[study.kind].unit, []
    for name, found in curves.items():
        marks = tuple(BEST if row.number == best else " " for row, best in zip(found, least, strict=True))
        columns.append(Column(data_key(name, unit), name, unit, tuple(row.cell for row in found), after=marks))
    remark = "recomputed ops" if study.kind == "growth" else ""
    return Table(key=key, title=title, remark=remark, columns=(*heads, *columns), heads=2)


def _note(study: Study) -> str:
    limit, seeds = study.overhead_limit, max(len(rows[0].runs) for rows in study.curves(0).values())
    text = (
        f"{LOOKS[study.kind].what}; {BEST}: the least in its row. oom: an op did not fit and nothing was left to "
        f"evict. thrash: given up, because it took more than {limit:.4g} times as long as the step (--limit)."
    )
    if study.kind == "growth":
        text = (
            "Linear networks of n layers: every op takes 1 ns, every tensor 1 byte; 2 n ops run anyway. "
            f"{BEST}: the least. oom: out of memory; thrash: given up after {2 * (limit - 1):.4g} n recomputed ops "
            f"(--limit {limit:.4g})."
        )
    elif seeds > 1:
        text += f" random: mean of {seeds} seeds; if one of them fails, so does the budget."
    if study.kind == "accesses":
        text += (
            " Each candidate counts, and what is looked at around it: around all (all), or where bounds do not rule "
            "it out (bounds)."
        )
    return text + (COMPAT if study.compat else "")


def _runs(study: Study) -> Table:
    """List every run with all that is known of it."""
    names: list[str | Column] = ["step.name as step", "step.compat", "curve", "cell.policy", "cell.deallocation"]
    names += ["cell.exhaustive", "cell.overhead_limit", "cell.budget_bytes", "at as ratio"]
    if study.kind == "growth":
        budget = Column("budget", "budget", "text", tuple(study.panels[trial.panel] for trial in study.trials))
        names = ["at as n", budget, "cell.budget_bytes", "cell.policy", "step.compat", "cell.overhead_limit"]
    every = (column(Trial, study.trials, f"run.{name}") for name in Run.__struct_fields__)
    ok = [trial.run.status == "ok" for trial in study.trials]
    run = (
        one
        if one.key in ("status", "eviction_hash")
        else replace(one, values=tuple(value if known else None for value, known in zip(one.values, ok, strict=True)))
        for one in every
    )  # what a run had when it was given up would read as its result
    return table(Trial, study.trials, *names, *run, key="runs", title="Runs", top=0)


# -- pictures ---------------------------------------------------------------------------------------


def _pictures(study: Study, curves: Curves, step: Step, panel: int) -> Iterator[Scatter]:
    """Draw a step: an ablation by the way to weigh work."""
    if study.kind != "ablation":
        yield _picture(study, curves, step, f"{study.kind}_{panel}", step.name)
        return
    for work in CELL_ROWS:
        own = {said: curves.get(f"{work}-{part}".rstrip("-"), ()) for part, said in PARTS.items()}
        own |= {name: rows for name, rows in curves.items() if work == "one" and name == "random"}
        yield _picture(study, own, step, f"{work}_{panel}", f"{step.name}, work {work}")


def _picture(study: Study, curves: Curves, step: Step, key: str, title: str) -> Scatter:
    """Draw values over budgets: a value holds up to the next larger budget, and what failed leaves a gap."""
    counted, look = study.kind == "accesses", LOOKS[study.kind]
    lowest = min((row.number for rows in curves.values() for row in rows if row.number), default=1) if counted else 1
    lines = (_line(name, rows[::-1], counted, lowest) for name, rows in curves.items())
    return Scatter(
        key=key,
        title=title,
        x=Axis("memory budget / peak"),
        y=Axis(look.label, "amount" if counted else "number", log=counted),
        points=tuple(_stacked(lines)),
        across=() if counted else (Limit("without recomputation", 1),),
        ranges=() if counted else ranges_of(step),
    )


def _line(name: str, rows: Sequence[Row], counted: bool, lowest: float) -> Points:
    x, y, end = tuple(row.at for row in rows), tuple(row.number for row in rows), _end(rows, lowest)
    low, high = (
        tuple(None if row.failed else which(run.overhead for run in row.runs) for row in rows) for which in (min, max)
    )
    if counted or low[:-1] == high[:-1]:  # that of the largest budget holds for no other, and has no width
        return Points(name, x, y, joined="line" if counted else "step", end=end)
    return Points(name, x, y, joined="step", low=low, high=high, end=end)


def _end(rows: Sequence[Row], lowest: float) -> End | None:
    """Find the budget that is too small, if one is, below the smallest that is not: without one, where ``lowest``
    is."""
    for failed, row in pairwise(rows):
        if failed.status != "ok" and row.number is not None:
            return End(failed.status, failed.at, row.at, row.number)
        if row.status == "ok":
            break
    last = rows[-1] if rows else None
    return None if last is None or last.status == "ok" else End(last.status, last.at, max(1, last.at), lowest)


def _stacked(lines: Iterable[Points]) -> Iterator[Points]:
    """Put marks of ends at one place above each other, so that all are seen."""
    taken: Counter[tuple[float, float]] = Counter()
    for line in lines:
        if line.end is None:
            yield line
            continue
        place = round(line.end.x, 3), float(f"{line.end.y:.2g}")
        yield replace(line, end=replace(line.end, below=taken[place]))
        taken[place] += 1


def _framed(blocks: Iterable[AnyBlock]) -> Iterator[AnyBlock]:
    """Give all panels the same axes and each curve one look, so that they can be compared."""
    every = [*blocks]
    panels = with_one_look([block for block in every if isinstance(block, Scatter)])
    alike = iter(panels)
    covers = [
        tuple(sorted({min(values), max(values)})) if (values := [*found]) else ()
        for found in (chain.from_iterable(map(_reached, panels, repeat(name))) for name in ("x", "y"))
    ]
    for block in every:
        if isinstance(block, Scatter):
            x, y = (replace(axis, covers=ends) for axis, ends in zip((block.x, block.y), covers, strict=True))
            yield replace(next(alike), x=x, y=y)
        else:
            yield block


def _reached(panel: Scatter, name: str) -> Iterator[float]:
    """Iterate over the values that ``panel`` shows on an axis: of a logarithmic one, those above 0."""
    yield from (limit.value for limit in (panel.down if name == "x" else panel.across))
    yield from (value for shade in panel.ranges if name == "x" for value in (shade.start, shade.end))
    for points in panel.points:
        if name == "x":
            values = [x for x, y in zip(points.x, points.y, strict=True) if y is not None]
            values += [points.end.x, points.end.start] if points.end else []
        else:
            values = [value for value in (*points.y, *points.low, *points.high) if value is not None]
        yield from (value for value in values if value > 0 or not getattr(panel, name).log)


def ranges_of(step: Step) -> tuple[Range, Range]:
    """Shade what constants take of the peak, and what some op needs beside them."""
    whole = step.baseline_bytes or 1
    constant = step.constant_bytes / whole
    return Range("constants", 0, constant), Range("one op", constant, constant + step.bottleneck_bytes / whole)


def _growth(curves: Curves, rule: str, panel: int) -> Scatter:
    """Draw recomputed ops against n, with what Chen's and Griewank's strategies need."""
    sizes = tuple(row.at for row in next(iter(curves.values())))
    lines = {name: tuple(row.number or None for row in rows) for name, rows in curves.items()}
    lines |= {name: tuple(map(bound, sizes)) for name, bound in BOUNDS.items()}
    return Scatter(
        key=f"growth_{panel}",
        title=f"budget {RULES[rule][0]}",
        x=Axis("layers n", "count", log=True),
        y=Axis("recomputed ops", "count", log=True),
        points=tuple(Points(name, sizes, values, joined="line") for name, values in lines.items()),
    )


# -- residency --------------------------------------------------------------------------------------


def residency_document(runs: Sequence[tuple[str, Simulation]]) -> Document:
    """Show which tensor is resident when in each titled run: a lane per tensor, in order of first use."""
    spans = (
        Spans(key=f"residency_{number}", title=title, x_unit="op", lanes=tuple(_lanes(run)), top=0)
        for number, (title, run) in enumerate(runs)
    )
    section = Section("residency", "", blocks=tuple(spans))
    return section.document("Tensors resident while ops run")


def _lanes(run: Simulation) -> Iterator[SpanLane]:
    for which, spans in enumerate(run.residency()):
        starts, ends = tuple(one.start for one in spans), tuple(one.end for one in spans)
        yield SpanLane(f"tensor {which}", starts, ends, kinds=tuple(one.kind for one in spans))
