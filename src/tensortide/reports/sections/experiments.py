"""Sections of experiments: policies over a range of budgets, and over linear networks of growing length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from tensortide.plans.remat.policies import CELL_ROWS
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table, UnitName, Value
from tensortide.reports.pictures import Axis, Lane, Limit, Points, Range, Scatter, Spans
from tensortide.studies.remat.linear import RULES, chen, treeverse
from tensortide.studies.remat.results import Row, Run, Step, Study
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.replays.remat.simulation import Simulation

__all__ = ["BEST", "COMPAT", "data_table", "document", "ranges_of", "residency_document", "section", "steps_table"]

BEST = "^"
"""Mark of the least of what stands beside it: an asterisk would read as "optimal"."""
COMPAT = " By the rules of DTR's own simulator (--compat)."
BOUNDS = {"Chen et al., 2 sqrt n": chen, "Treeverse, log2 n": treeverse}
Curves: TypeAlias = Mapping[str, Sequence[Row]]


class Look(NamedTuple):
    """Way to show one kind of study: the titles of its section, and its numbers in tables and pictures."""

    title: str
    unit: UnitName = "ratio"
    label: str = "time / step time"
    what: str = "Time over time without recomputation"
    key: str = ""
    document: str = ""


LOOKS = {
    "sweep": Look("Time against memory"),
    "ablation": Look("What each part of a policy is worth"),
    "banishing": Look("What is done with what the program drops"),
    "accesses": Look(
        "Storages looked at", "amount", "storages looked at", "Storages looked at in order to choose what to evict"
    ),
    "growth": Look(
        "Recomputation as a network grows",
        "count",
        "recomputed ops",
        key="linear",
        document="Recomputation in linear networks of n layers",
    ),
}


def document(study: Study) -> Document:
    """Show ``study``."""
    look = LOOKS[study.kind]
    title = look.document or f"{look.title}: {', '.join(study.panels)}"
    return Document(title=title, sections=(section(study),))


def section(study: Study) -> Section:
    """Make the section of ``study``: for each panel a table and a picture, then every run as data."""
    grows = study.kind == "growth"
    blocks: list[AnyBlock] = [] if grows else [steps_table(study.steps())]
    for panel, (name, step) in enumerate(zip(study.panels, study.steps(), strict=True)):
        curves = study.curves(panel)
        if grows:
            title = f"Budget {RULES[name][0]}"
            blocks += [_table(study, curves, f"budget_{panel}", title), _growth(curves, name, panel)]
        else:
            blocks += [_table(study, curves, f"budgets_{panel}", name), *_pictures(study, curves, step, panel)]
    blocks += [_runs(study), Note(text=_growth_note(study) if grows else _note(study))]
    return Section(LOOKS[study.kind].key or study.kind, LOOKS[study.kind].title, blocks=tuple(blocks))


def steps_table(steps: Sequence[Step]) -> Table:
    """Show what is known of steps beforehand."""
    durations = tuple(step.durations or "unknown" for step in steps)
    return Table(
        key="steps",
        columns=(
            Column("step", "Step", "text", tuple(step.name for step in steps), fold=True),
            Column("ops", "Ops", "count", tuple(step.ops for step in steps)),
            Column("device", "Device", "text", tuple(step.device for step in steps)),
            Column("model", "Op sum", "ns", tuple(step.model_ns for step in steps)),
            Column("baseline", "Peak", "bytes", tuple(step.baseline_bytes for step in steps)),
            Column("constant", "constants", "bytes", tuple(step.constant_bytes for step in steps)),
            Column("bottleneck", "one op", "bytes", tuple(step.bottleneck_bytes for step in steps)),
            Column("durations", "Durations", "text", durations, fold=True, dim=True),
            Column("compat", "--compat", "flag", tuple(step.compat for step in steps), data=True),
        ),
        note="Op sum and peak without a budget; constants: what nothing can recompute; one op: the most that one needs "
        "beside them.",
    )


# -- tables -----------------------------------------------------------------------------------------


def _table(study: Study, curves: Curves, key: str, title: str) -> Table:
    """Show budgets, or lengths of networks, down and policies across; the least of each row is marked."""
    rows = next(iter(curves.values()))
    at, budgets = tuple(row.at for row in rows), tuple(row.budget_bytes for row in rows)
    if study.kind == "growth":
        heads = Column("n", "n", "count", at), Column("budget", "budget", "count", budgets)
    else:
        heads = Column("ratio", "of peak", "share", at), Column("budget", "Budget", "bytes", budgets)
    numbers = {name: [_number(study.kind, row) for row in rows] for name, rows in curves.items()}
    least = [min((n for n in row if n is not None), default=None) for row in zip(*numbers.values(), strict=True)]
    columns = []
    for name, found in numbers.items():
        cells = tuple(_failed(row) if n is None else n for n, row in zip(found, curves[name], strict=True))
        marks = tuple(BEST if n is not None and n == best else " " for n, best in zip(found, least, strict=True))
        columns.append(Column(name, name, LOOKS[study.kind].unit, cells, after=marks))
    remark = "recomputed ops" if study.kind == "growth" else ""
    return Table(key=key, title=title, remark=remark, columns=(*heads, *columns), heads=2)


def _number(kind: str, row: Row) -> float | None:
    """The number that a study of ``kind`` is about; None where a run failed."""
    if row.status != "ok":
        return None
    if kind == "growth":
        return row.runs[0].remat_ns
    return row.runs[0].accesses if kind == "accesses" else row.overhead


def _failed(row: Row) -> str:
    several = f" {row.failed}/{len(row.runs)}" if len(row.runs) > 1 and row.failed < len(row.runs) else ""
    return row.status + several


def _note(study: Study) -> str:
    text = (
        f"{LOOKS[study.kind].what}; {BEST}: the least in its row. oom: an op did not fit and nothing was left to "
        f"evict. thrash: given up, because it took more than {study.overhead_limit:.4g} times as long as the step "
        "(--limit)."
    )
    seeds = max(len(rows[0].runs) for rows in study.curves(0).values())
    if seeds > 1:
        text += f" random: mean of {seeds} seeds; if one of them fails, so does the budget."
    if study.kind == "accesses":
        text += (
            " Each candidate counts, and what is looked at around it: around all (all), or where bounds do not rule "
            "it out (bounds)."
        )
    return text + (COMPAT if study.compat else "")


def _growth_note(study: Study) -> str:
    limit = study.overhead_limit
    return (
        "Linear networks of n layers: every op takes 1 ns, every tensor 1 byte; 2 n ops run anyway. "
        f"{BEST}: the least. oom: out of memory; thrash: given up after {2 * (limit - 1):.4g} n recomputed ops "
        f"(--limit {limit:.4g})." + (COMPAT if study.compat else "")
    )


def _runs(study: Study) -> Table:
    """List every run with all that is known of it."""
    head: tuple[str, ...] = ("step", "compat", "curve", "policy", "deallocation", "exhaustive", "overhead_limit")
    head += ("budget_bytes", "ratio")
    if study.kind == "growth":
        head = ("n", "budget", "budget_bytes", "policy", "compat", "overhead_limit")
    rows: list[tuple[Value, ...]] = []
    for trial in study.trials:
        known: dict[str, Value] = {"step": trial.step.name, "compat": trial.step.compat, "curve": trial.curve}
        known |= {"ratio": trial.at, "n": trial.at, "budget": study.panels[trial.panel]}
        known |= msgspec.structs.asdict(trial.cell)
        rows.append((*(known[name] for name in head), *msgspec.structs.astuple(trial.run)))
    return data_table("runs", "Runs", (*head, *Run.__struct_fields__), rows)


def data_table(key: str, title: str, names: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
    """Make a table for files and the page of ``rows`` under ``names``."""
    columns = [*zip(*rows, strict=True)] or [()] * len(names)
    made = tuple(Column(n, n.replace("_", " "), "text", values) for n, values in zip(names, columns, strict=True))
    return Table(key=key, title=title, columns=made, top=0)


# -- pictures ---------------------------------------------------------------------------------------


def _pictures(study: Study, curves: Curves, step: Step, panel: int) -> Iterator[Scatter]:
    """Draw a step: an ablation by the way to weigh work."""
    if study.kind != "ablation":
        yield _picture(study, curves, step, f"{study.kind}_{panel}", step.name)
        return
    for work in CELL_ROWS:
        own = {name: rows for name, rows in curves.items() if name.split("-")[0] == work}
        own |= {name: rows for name, rows in curves.items() if work == "one" and name == "random"}
        yield _picture(study, own, step, f"{work}_{panel}", f"{step.name}, work {work}")


def _picture(study: Study, curves: Curves, step: Step, key: str, title: str) -> Scatter:
    """Draw values over budgets: a value holds up to the next larger budget, and what failed leaves a gap."""
    counted, look = study.kind == "accesses", LOOKS[study.kind]
    curves = {name: rows[::-1] for name, rows in curves.items()}
    return Scatter(
        key=key,
        title=title,
        x=Axis("memory budget / peak"),
        y=Axis(look.label, "amount" if counted else "number", log=counted),
        points=(*(_line(study.kind, *curve) for curve in curves.items()), *_ends(study.kind, curves)),
        across=() if counted else (Limit("without recomputation", 1),),
        ranges=() if counted else ranges_of(step),
    )


def _line(kind: str, name: str, rows: Sequence[Row]) -> Points:
    x, y = tuple(row.at for row in rows), tuple(_number(kind, row) for row in rows)
    if kind == "accesses" or all(len(row.runs) == 1 for row in rows):
        return Points(name, x, y, joined="line" if kind == "accesses" else "step")
    low, high = (
        tuple(None if row.failed else end(run.overhead for run in row.runs) for row in rows) for end in (min, max)
    )
    return Points(name, x, y, joined="step", low=low, high=high)


def _ends(kind: str, curves: Curves) -> Iterator[Points]:
    """Point at the budget that is too small for each policy, at the height at which its line ends."""
    for status in ("oom", "thrash"):
        ends = []
        for name, rows in curves.items():
            first = next((i for i, row in enumerate(rows) if row.status == "ok"), 0)
            if first and rows[first - 1].status == status:
                ends.append((rows[first - 1].at, _number(kind, rows[first]), name))
        x, y, names = (tuple(column) for column in zip(*ends, strict=True)) if ends else ((), (), ())
        yield Points(status, x, y, names=names)


def ranges_of(step: Step) -> tuple[Range, Range]:
    """Shade what constants take of the peak, and what some op needs beside them."""
    whole = step.baseline_bytes or 1
    constant = step.constant_bytes / whole
    return Range("constants", 0, constant), Range("one op", constant, constant + step.bottleneck_bytes / whole)


def _growth(curves: Curves, rule: str, panel: int) -> Scatter:
    """Draw recomputed ops against n, with what Chen's and Griewank's strategies need."""
    sizes = tuple(row.at for row in next(iter(curves.values())))
    lines = {name: tuple(_number("growth", row) or None for row in rows) for name, rows in curves.items()}
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
    return Document(title="Tensors resident while ops run", sections=(Section("residency", "", blocks=tuple(spans)),))


def _lanes(run: Simulation) -> Iterator[Lane]:
    """The op runs during which each storage is computed, recomputed or just resident."""
    schedule, made = run.schedule, [outputs for _, outputs in run.schedule.ops()]
    storage, op_of = schedule.storage.tolist(), schedule.op_of.tolist()
    spans: list[list[tuple[int, int, str]]] = [[] for _ in schedule.root]
    since: dict[int, int] = {}
    gone: set[int] = set()
    at = 0

    def leave(which: int) -> None:
        came = since.pop(which, at)
        if came < at:
            spans[which].append((came, at, "resident"))

    for kind, index in run.trace():
        if kind > Kind.RECOMPUTE:
            leave(index)
            gone |= {index} if kind != Kind.EVICT else set()
            continue
        op, word = (index, "computed") if kind == Kind.RUN else (op_of[index], "recomputed")
        for which in {storage[value] for value in made[op]} - since.keys() - gone:
            spans[which].append((at, at + 1, word))
            since[which] = at + 1
        at += 1
    for which in list(since):
        leave(which)
    for which, found in enumerate(spans):
        starts, ends, kinds = (tuple(column) for column in zip(*found, strict=True)) if found else ((), (), ())
        yield Lane(f"tensor {which}", starts, ends, kinds=kinds)
