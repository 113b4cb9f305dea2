"""Section ``modules``: the module tree with FLOPs, bytes, parameters and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tensortide.reports.blocks import AnyBlock, Column, Section, Table, UnitName, Value
from tensortide.reports.module_tree import ModuleRow, fold_modules
from tensortide.reports.render.values import data_key
from tensortide.reports.sections import Step

__all__ = ["ORDER", "by_memory", "of_step"]

ORDER = 20

View = Literal["full", "cost", "memory"]


class _Spec(NamedTuple):
    """A column: its values are the field ``key`` of the rows, with the suffix of its unit."""

    key: str
    label: str
    unit: UnitName
    views: tuple[View, ...] = ("full",)
    at_width: int = 0
    bar: int = 0


COLUMNS = (
    _Spec("type", "Type", "text", ("full", "cost", "memory"), 118),
    _Spec("ops", "Ops", "count"),
    _Spec("flops", "FLOPs", "flops", ("full", "cost"), bar=1),
    _Spec("share", "share", "share", ("cost",), bar=96),
    _Spec("macs", "MACs", "macs"),
    _Spec("accessed", "Bytes", "bytes", ("full", "cost"), 96, bar=1),
    _Spec("parameters", "Params", "amount", ("full", "cost")),
    _Spec("parameter", "Params", "bytes", ("memory",)),
    _Spec("saved", "Saved", "bytes", ("full", "cost", "memory")),
    _Spec("retained", "Leaves", "bytes", ("full", "memory")),
    _Spec("transient", "Adds", "bytes", ("full", "memory")),
    _Spec("peak", "At peak", "bytes", ("full", "cost", "memory"), bar=1),
    _Spec("own_flops", "", "flops", ()),
    _Spec("own_accessed", "", "bytes", ()),
    _Spec("own_ops", "", "count", ()),
    _Spec("unknown_ops", "", "count", ()),
    _Spec("parent", "", "count", ()),
    _Spec("path", "", "path", ()),
)
"""Columns in their order; those of a view without them are for data alone."""
AREAS = ("flops", "accessed", "parameters", "saved", "peak")


def of_step(step: Step) -> Section | None:
    """Make the section with costs: folded in text, with every module on the page."""
    rows = [row for row in fold_modules(step.modules, step.depth) if _counts(row)]
    return _section(step, rows, "cost", "Where it goes", "submodules included") if step.modules else None


def by_memory(step: Step) -> Section | None:
    """Make the section with memory in text."""
    rows = [row for row in fold_modules(step.modules, step.depth) if row.transient_bytes or row.parameter_bytes]
    about = "leaves: after its forward; adds: the most during one call"
    return _section(step, rows, "memory", "Memory by module", about) if step.modules else None


def _counts(row: ModuleRow) -> bool:
    return bool(row.flops or row.accessed_bytes or row.parameters or row.peak_bytes)


def _section(step: Step, folded: Sequence[ModuleRow], view: View, title: str, about: str) -> Section:
    whole = step.counted.total.flops
    columns = _columns(folded, view, whole)
    brief = Table(key=f"folded_{view}", columns=columns, depth=_depths(folded), to_depth=step.depth, only="text")
    every = _columns(step.modules, "full", whole)
    depth = _depths(step.modules)
    full = Table(key="modules", columns=every, depth=depth, to_depth=step.depth, areas=AREAS, kind="type", only="page")
    blocks: tuple[AnyBlock, ...] = (brief, full)
    return Section("modules", title, about, blocks)


def _depths(rows: Sequence[ModuleRow]) -> tuple[int, ...]:
    return tuple(row.depth for row in rows)


def _columns(rows: Sequence[ModuleRow], view: View, whole: int) -> tuple[Column, ...]:
    several = tuple(f" x{row.count}" if row.count > 1 else "" for row in rows)
    columns = [Column("module", "Module", "path", tuple(row.name for row in rows), fold=True, after=several)]
    for spec in COLUMNS:
        values = tuple(_value(row, spec, whole) for row in rows)
        empty = spec.key == "saved" and view == "cost" and not any(values)
        zero = None if spec.unit in ("text", "path", "count") else "-"
        columns.append(
            Column(
                spec.key,
                spec.label,
                spec.unit,
                values,
                at_width=spec.at_width,
                bar=spec.bar if view == "full" or spec.key == "share" else 0,
                dim=spec.key == "type",
                zero=zero,
                data=view not in spec.views or empty,
            )
        )
    return tuple(columns)


def _value(row: ModuleRow, spec: _Spec, whole: int) -> Value:
    if spec.key == "share":
        return row.flops / whole if whole else 0.0
    value: Value = getattr(row, data_key(spec.key, spec.unit))
    return value
