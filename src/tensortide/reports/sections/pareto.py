"""Section ``sweep``, ``ablation``, ``banishing`` or ``accesses``: policies over a range of budgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tensortide.plans.remat.policies import CELL_ROWS
from tensortide.reports.blocks import (
    AnyBlock,
    Axis,
    Column,
    Document,
    Limit,
    Note,
    Points,
    Range,
    Scatter,
    Section,
    Table,
    Value,
)
from tensortide.studies.remat.results import Curve, Experiment, Row, Run, Step, Study

__all__ = ["BEST", "best_marks", "document", "ranges_of", "section", "steps_table"]

BEST = "^"
"""Mark of the least of what stands beside it: an asterisk would read as "optimal"."""
COMPAT = " By the rules of DTR's own simulator (--compat)."
TITLES = {
    "sweep": "Time against memory",
    "ablation": "What each part of a policy is worth",
    "banishing": "What is done with what the program drops",
    "accesses": "Storages looked at",
}


def document(experiment: Experiment) -> Document:
    """Show ``experiment``."""
    names = ", ".join(study.step.name for study in experiment.studies)
    return Document(title=f"{TITLES[experiment.kind]}: {names}", sections=(section(experiment),))


def section(experiment: Experiment) -> Section:
    """Make the section of ``experiment``: for each step a table and a picture, then every run as data."""
    counted = experiment.kind == "accesses"
    blocks: list[AnyBlock] = [steps_table([study.step for study in experiment.studies])]
    for number, study in enumerate(experiment.studies):
        blocks.append(_table(study, f"budgets_{number}", counted))
        blocks += _pictures(experiment, study, number)
    blocks += [_runs(experiment), Note(text=_note(experiment, counted))]
    return Section(experiment.kind, TITLES[experiment.kind], blocks=tuple(blocks))


def steps_table(steps: Sequence[Step]) -> Table:
    """Show what is known of steps beforehand."""
    durations = tuple(step.durations or "unknown" for step in steps)
    return Table(
        key="steps",
        columns=(
            Column("step", "Step", "text", tuple(step.name for step in steps), fold=True),
            Column("ops", "Ops", "count", tuple(step.ops for step in steps)),
            Column("device", "Device", "text", tuple(step.device for step in steps)),
            Column("model", "Time", "ns", tuple(step.model_ns for step in steps)),
            Column("baseline", "Peak", "bytes", tuple(step.baseline_bytes for step in steps)),
            Column("constant", "constants", "bytes", tuple(step.constant_bytes for step in steps)),
            Column("bottleneck", "one op", "bytes", tuple(step.bottleneck_bytes for step in steps)),
            Column("durations", "Durations", "text", durations, fold=True, dim=True),
            Column("compat", "--compat", "flag", tuple(step.compat for step in steps), data=True),
        ),
        note="Time and peak without a budget; constants: what nothing can recompute; one op: the most that one needs "
        "beside them.",
    )


# -- tables -----------------------------------------------------------------------------------------


def _table(study: Study, key: str, counted: bool) -> Table:
    """Show budgets down and policies across."""
    rows = study.curves[0].rows
    numbers = [[_number(row, counted) for row in curve.rows] for curve in study.curves]
    marks = best_marks(numbers)
    columns = [
        Column("ratio", "of peak", "share", tuple(row.ratio for row in rows)),
        Column("budget", "Budget", "bytes", tuple(row.budget_bytes for row in rows)),
    ]
    for curve, found, after in zip(study.curves, numbers, marks, strict=True):
        cells = tuple(_failed(row) if n is None else n for n, row in zip(found, curve.rows, strict=True))
        columns.append(Column(curve.name, curve.name, "amount" if counted else "ratio", cells, after=after))
    return Table(key=key, title=study.step.name, columns=tuple(columns), heads=2)


def best_marks(numbers: Sequence[Sequence[float | None]]) -> list[tuple[str, ...]]:
    """Mark in columns of ``numbers`` the least of each row."""
    least = [min((n for n in row if n is not None), default=None) for row in zip(*numbers, strict=True)]
    return [
        tuple(BEST if n is not None and n == best else " " for n, best in zip(column, least, strict=True))
        for column in numbers
    ]


def _number(row: Row, counted: bool) -> float | None:
    if row.status != "ok":
        return None
    return row.runs[0].accesses if counted else row.overhead


def _failed(row: Row) -> str:
    several = f" {row.failed}/{len(row.runs)}" if len(row.runs) > 1 and row.failed < len(row.runs) else ""
    return row.status + several


def _note(experiment: Experiment, counted: bool) -> str:
    what = "Storages looked at in order to choose what to evict" if counted else "Time over time without recomputation"
    text = (
        f"{what}; {BEST}: the least in its row. oom: an op did not fit and nothing was left to evict. thrash: given "
        f"up, because it took more than {experiment.overhead_limit:.4g} times as long as the step (--limit)."
    )
    if seeds := max(len(curve.policies) for curve in experiment.studies[0].curves) - 1:
        text += f" random: mean of {seeds + 1} seeds; if one of them fails, so does the budget."
    if counted:
        text += (
            " Each candidate counts, and what is looked at around it: around all (all), or where bounds do not rule "
            "it out (bounds)."
        )
    return text + (COMPAT if any(study.step.compat for study in experiment.studies) else "")


def _runs(experiment: Experiment) -> Table:
    """List every run with all that is known of it."""
    head = ("step", "compat", "curve", "policy", "deallocation", "exhaustive", "overhead_limit", "budget_bytes")
    rows: list[tuple[Value, ...]] = [
        (
            *(study.step.name, study.step.compat, curve.name, policy, curve.deallocation, curve.exhaustive),
            *(experiment.overhead_limit, row.budget_bytes, row.ratio),
            *msgspec.structs.astuple(run),
        )
        for study in experiment.studies
        for curve in study.curves
        for row in curve.rows
        for policy, run in zip(curve.policies, row.runs, strict=True)
    ]
    return data_table("runs", "Runs", (*head, "ratio", *Run.__struct_fields__), rows)


def data_table(key: str, title: str, names: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
    """Make a table for files and the page of ``rows`` under ``names``."""
    columns = [*zip(*rows, strict=True)] or [()] * len(names)
    made = tuple(Column(n, n.replace("_", " "), "text", values) for n, values in zip(names, columns, strict=True))
    return Table(key=key, title=title, columns=made, top=0)


# -- pictures ---------------------------------------------------------------------------------------


def _pictures(experiment: Experiment, study: Study, number: int) -> Iterator[Scatter]:
    """Draw a step: an ablation by the way to weigh work."""
    if experiment.kind != "ablation":
        yield _picture(experiment, study, study.curves, f"{experiment.kind}_{number}", study.step.name)
        return
    for row in CELL_ROWS:
        curves = [curve for curve in study.curves if curve.name.split("-")[0] == row]
        curves += [curve for curve in study.curves if row == "one" and curve.name == "random"]
        yield _picture(experiment, study, curves, f"{row}_{number}", f"{study.step.name}, work {row}")


def _picture(experiment: Experiment, study: Study, curves: Sequence[Curve], key: str, title: str) -> Scatter:
    """Draw values over budgets: a value holds up to the next larger budget, and what failed leaves a gap."""
    counted = experiment.kind == "accesses"
    label = "storages looked at" if counted else "time / step time"
    return Scatter(
        key=key,
        title=title,
        x=Axis("memory budget / peak"),
        y=Axis(label, "amount" if counted else "number", log=counted),
        points=(*(_line(curve, counted) for curve in curves), *_ends(curves, counted)),
        across=() if counted else (Limit("without recomputation", 1),),
        ranges=() if counted else ranges_of(study.step),
    )


def _line(curve: Curve, counted: bool) -> Points:
    rows = sorted(curve.rows, key=lambda row: row.ratio)
    x, y = tuple(row.ratio for row in rows), tuple(_number(row, counted) for row in rows)
    if counted or all(len(row.runs) == 1 for row in rows):
        return Points(curve.name, x, y, joined="line" if counted else "step")
    low, high = (
        tuple(None if n is None else end(row.overheads) for n, row in zip(y, rows, strict=True)) for end in (min, max)
    )
    return Points(curve.name, x, y, joined="step", low=low, high=high)


def _ends(curves: Sequence[Curve], counted: bool) -> Iterator[Points]:
    """Point at the budget that is too small for each policy, at the height at which its line ends."""
    for status in ("oom", "thrash"):
        ends = []
        for curve in curves:
            rows = sorted(curve.rows, key=lambda row: row.ratio)
            first = next((i for i, row in enumerate(rows) if row.status == "ok"), 0)
            if first and rows[first - 1].status == status:
                ends.append((rows[first - 1].ratio, _number(rows[first], counted), curve.name))
        x, y, names = (tuple(column) for column in zip(*ends, strict=True)) if ends else ((), (), ())
        yield Points(status, x, y, names=names)


def ranges_of(step: Step) -> tuple[Range, Range]:
    """Shade what constants take of the peak, and what some op needs beside them."""
    whole = step.baseline_bytes or 1
    constant = step.constant_bytes / whole
    return Range("constants", 0, constant), Range("one op", constant, constant + step.bottleneck_bytes / whole)
