"""Section ``linear``: recomputation in linear networks of growing length, against known bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from tensortide.reports.blocks import (
    AnyBlock,
    Axis,
    Column,
    Document,
    Lane,
    Note,
    Points,
    Scatter,
    Section,
    Spans,
    Table,
)
from tensortide.reports.sections.pareto import BEST, COMPAT, best_marks, data_table
from tensortide.studies.remat.linear import chen, treeverse
from tensortide.studies.remat.residency import ABSENT, COMPUTED, RECOMPUTED, RESIDENT, residency
from tensortide.studies.remat.results import Growth, Run

if TYPE_CHECKING:
    from tensortide.replays.remat.simulation import Simulation

__all__ = ["RULE_NAMES", "document", "residency_document", "section"]

RULE_NAMES = {
    "n": "n",
    "n/2": "n / 2",
    "8sqrt": "8 sqrt n",
    "6sqrt": "6 sqrt n",
    "4sqrt": "4 sqrt n",
    "2sqrt": "2 sqrt n",
    "sqrt+3": "sqrt n + 3",
    "sqrt": "sqrt n",
    "3log2": "3 log2 n",
    "log2": "log2 n",
}
"""Budgets as functions of n, as they are written."""
BOUNDS = {"Chen et al., 2 sqrt n": chen, "Treeverse, log2 n": treeverse}
STATES = {RESIDENT: "resident", COMPUTED: "computed", RECOMPUTED: "recomputed"}


def document(growth: Growth) -> Document:
    """Show ``growth``."""
    return Document(title="Recomputation in linear networks of n layers", sections=(section(growth),))


def section(growth: Growth) -> Section:
    """Make the section of ``growth``: for each budget a table and a picture, then every run as data."""
    blocks: list[AnyBlock] = []
    for number, rule in enumerate(growth.rules):
        blocks += [_table(growth, rule, number), _picture(growth, rule, number)]
    head = ("n", "budget", "budget_bytes", "policy", "compat", "overhead_limit", *Run.__struct_fields__)
    rows = [
        (
            *(point.n, point.rule, point.budget_bytes, point.policy, growth.compat, growth.overhead_limit),
            *msgspec.structs.astuple(point.run),
        )
        for point in growth.points
    ]
    text = (
        "Linear networks of n layers: every op takes 1 ns, every tensor 1 byte; 2 n ops run anyway. "
        f"{BEST}: the least. oom: out of memory; thrash: given up after "
        f"{2 * (growth.overhead_limit - 1):.4g} n recomputed ops (--limit {growth.overhead_limit:.4g})."
    )
    blocks += [data_table("runs", "Runs", head, rows), Note(text=text + (COMPAT if growth.compat else ""))]
    return Section("linear", "Recomputation as a network grows", blocks=tuple(blocks))


def _table(growth: Growth, rule: str, number: int) -> Table:
    runs = {name: [growth.point(n, rule, name).run for n in growth.sizes] for name in growth.policies}
    numbers = [[run.remat_ns if run.status == "ok" else None for run in several] for several in runs.values()]
    budgets = tuple(growth.point(n, rule, growth.policies[0]).budget_bytes for n in growth.sizes)
    columns = [Column("n", "n", "count", growth.sizes), Column("budget", "budget", "count", budgets)]
    for (name, several), found, after in zip(runs.items(), numbers, best_marks(numbers), strict=True):
        cells = tuple(run.status if n is None else n for n, run in zip(found, several, strict=True))
        columns.append(Column(name, name, "count", cells, after=after))
    title = f"Budget {RULE_NAMES[rule]}"
    return Table(key=f"budget_{number}", title=title, remark="recomputed ops", columns=tuple(columns), heads=2)


def _picture(growth: Growth, rule: str, number: int) -> Scatter:
    """Draw recomputed ops against n, with what Chen's and Griewank's strategies need."""
    lines = []
    for name in growth.policies:
        runs = [growth.point(n, rule, name).run for n in growth.sizes]
        found = tuple(run.remat_ns if run.status == "ok" and run.remat_ns else None for run in runs)
        lines.append(Points(name, growth.sizes, found, joined="line"))
    bounds = (Points(name, growth.sizes, tuple(map(f, growth.sizes)), joined="line") for name, f in BOUNDS.items())
    return Scatter(
        key=f"growth_{number}",
        title=f"budget {RULE_NAMES[rule]}",
        x=Axis("layers n", "count", log=True),
        y=Axis("recomputed ops", "count", log=True),
        points=(*lines, *bounds),
    )


def residency_document(runs: Sequence[tuple[str, Simulation]]) -> Document:
    """Show which tensor is resident when in each titled run: a lane per tensor, in order of first use."""
    spans = (
        Spans(key=f"residency_{number}", title=title, x_unit="op", lanes=tuple(_lanes(run)), top=0)
        for number, (title, run) in enumerate(runs)
    )
    return Document(title="Tensors resident while ops run", sections=(Section("residency", "", blocks=tuple(spans)),))


def _lanes(run: Simulation) -> Iterator[Lane]:
    for tensor, row in enumerate(residency(run).tolist()):
        start, found = 0, []
        for state, members in groupby(row):
            end = start + sum(1 for _ in members)
            if state != ABSENT:
                found.append((start, end, STATES[state]))
            start = end
        starts, ends, kinds = (tuple(column) for column in zip(*found, strict=True)) if found else ((), (), ())
        yield Lane(f"tensor {tensor}", starts, ends, kinds=kinds)
