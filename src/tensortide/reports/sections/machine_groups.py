"""Tables of ops by phase, module and op, with their predicted time on each of several machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from tensortide.cost.coverage import shown
from tensortide.reports.blocks import Column, Table
from tensortide.reports.names import pattern
from tensortide.reports.sections import Step
from tensortide.reports.sections.modules import OUTSIDE_PATH, ROOT_PATH
from tensortide.reports.sections.predicted_times import times_columns
from tensortide.timelines.machines import MachineStep
from tensortide.timing.estimates import Estimate
from tensortide.timing.totals import total, unpredicted_ns

__all__ = ["WIDE", "by_op", "by_phase", "grouped_table", "modules_table"]

WIDE = 130
"""From so many columns on every time has its interval and provenance beside it."""

Name: TypeAlias = tuple[str, ...]
Groups: TypeAlias = Mapping[Name, Sequence[int]]
"""Ops of one machine's step by the name that they are shown under: of a module with those around it."""


def _by(step: Step, name: Callable[[int], str]) -> Groups:
    groups: defaultdict[Name, list[int]] = defaultdict(list)
    for index in range(len(step.graph)):
        groups[(name(index),)].append(index)
    return groups


def by_phase(step: Step) -> Groups:
    """Ops by the phase that they run in."""
    return _by(step, step.phases.__getitem__)


def by_op(step: Step) -> Groups:
    """Ops by name."""
    return _by(step, lambda index: shown(step.graph[index].name))


def grouped_table(
    key: str,
    title: str,
    label: str,
    groups: Sequence[Groups],
    found: Sequence[MachineStep],
    *,
    top: int | None = None,
    names: Sequence[Name] = (),
) -> Table:
    """Sums of ops by group, a time for each machine; the largest first, or ``names`` in their order."""
    sums = [
        {name: total(one.durations, ops) for name, ops in of.items()} for one, of in zip(found, groups, strict=True)
    ]
    every = names or sorted({name for of in sums for name in of}, key=lambda name: _largest_first(sums, name))
    columns = [Column(label.lower(), label, "name", tuple(".".join(name) for name in every), fold=True)]
    for i, one in enumerate(found):
        times = [sums[i].get(name) for name in every]
        without = [unpredicted_ns(one.durations, groups[i].get(name, ())) for name in every]
        columns += times_columns(f"time_{i}", str(one.machines), times, without, interval=True, at_width=WIDE)
        columns.append(
            Column(
                f"provenance_{i}",
                "rests on",
                "text",
                tuple("" if t is None else str(t.provenance) for t in times),
                at_width=WIDE,
            )
        )
        columns.append(
            Column(f"unknown_{i}", "Unknown ops", "count", tuple(t.unknown if t else 0 for t in times), data=True)
        )
    return Table(key=key, title=title, remark="ops alone", columns=tuple(columns), top=top, heads=1)


def _largest_first(sums: Sequence[Mapping[Name, Estimate]], name: Name) -> tuple[float, Name]:
    return -max(of[name].time_ns for of in sums if name in of), name


def modules_table(steps: Sequence[Step], found: Sequence[MachineStep]) -> Table:
    """The module tree, with what is inside; modules that differ by number alone share a row."""
    depth = steps[0].depth
    groups = [_inside(step) for step in steps]
    most: defaultdict[Name, float] = defaultdict(float)
    for one, of in zip(found, groups, strict=True):
        for name, ops in of.items():
            most[name] = max(most[name], total(one.durations, ops).time_ns)

    def place(name: Name) -> list[tuple[float, str]]:
        return [(-most[name[:level]], name[level - 1]) for level in range(1, len(name) + 1)]

    rows = sorted(most, key=place)
    table = grouped_table("machine_modules", "By module", "Module", groups, found, names=rows)
    head = Column("module", "Module", "path", tuple(row[-1] for row in rows), fold=True)
    return replace(
        table,
        remark=f"to depth {depth}, with what is inside",
        columns=(head, *table.columns[1:]),
        depth=tuple(len(row) - 1 for row in rows),
        to_depth=depth,
    )


def _inside(step: Step) -> Groups:
    """Ops by every module that they are in, to ``step.depth``."""
    inside: defaultdict[Name, list[int]] = defaultdict(list)
    rooted = any(not module.path for module in step.graph.modules)
    for index, op in enumerate(step.graph.ops):
        path = step.graph.module_path(op.module)
        above = (ROOT_PATH,) if rooted and path not in (ROOT_PATH, OUTSIDE_PATH) else ()
        names = (*above, *pattern(path).split("."))
        for level in range(1, min(len(names), step.depth + 1) + 1):
            inside[names[:level]].append(index)
    return inside
