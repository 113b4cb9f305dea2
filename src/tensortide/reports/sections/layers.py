"""Section ``layers``: the layer table, and the bytes of results resident at each op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tensortide.metrics.layers import Layer, Layers
from tensortide.reports.blocks import Column, Document, Section, Table, UnitName, Value
from tensortide.reports.pictures import Curve, Series

__all__ = ["document", "of_layers"]


class _Spec(NamedTuple):
    """A column: its value in a row, and the width of a terminal from which it is shown."""

    key: str
    label: str
    unit: UnitName
    of: Callable[[Layer], Value]
    at_width: int = 0


_COLUMNS = (
    _Spec("path", "Module", "path", lambda row: row.path),
    _Spec("op", "Op", "name", lambda row: row.op),
    _Spec("phase", "Phase", "text", lambda row: row.phase, 150),
    _Spec("inputs", "Inputs", "code", lambda row: row.inputs, 190),
    _Spec("outputs", "Outputs", "code", lambda row: row.outputs, 110),
    _Spec("weights", "Weights", "code", lambda row: row.weights, 130),
    _Spec("parameters", "Params", "amount", lambda row: row.parameters),
    _Spec("macs", "MACs", "macs", lambda row: row.macs),
    _Spec("elementwise_flops", "Elementwise", "flops", lambda row: row.elementwise_flops),
    _Spec("accessed", "Bytes", "bytes", lambda row: row.bytes, 96),
    _Spec("saved", "Saved", "bytes", lambda row: row.saved_bytes, 118),
    _Spec("live", "Live", "bytes", lambda row: row.live_bytes),
    _Spec("time", "Time", "ns", lambda row: row.time_ns),
)


def document(found: Layers) -> Document:
    """Show the table alone."""
    meta = found.graph.meta
    return of_layers(found).document(meta.workload, f"by {found.by}", settings=dict(meta.hyperparameters))


def of_layers(found: Layers) -> Section:
    """Make the section: a row for each op or module, and for ops the bytes of results resident at each."""
    return Section("layers", f"By {found.by}", blocks=(_table(found), *_live(found)))


def _table(found: Layers) -> Table:
    columns = (_column(spec, found) for spec in _COLUMNS)
    return Table(key="layers", columns=tuple(column for column in columns if _says_something(column)), heads=2)


def _column(spec: _Spec, found: Layers) -> Column:
    label = "Type" if spec.key == "op" and found.by == "module" else spec.label
    zero = None if spec.unit in ("path", "name", "code", "text") else "-"
    values = tuple(map(spec.of, found.rows))
    return Column(spec.key, label, spec.unit, values, at_width=spec.at_width, fold=not zero, zero=zero)


def _says_something(column: Column) -> bool:
    return any(value not in (None, "", 0) for value in column.values)


def _live(found: Layers) -> Iterator[Curve]:
    live = tuple(row.live_bytes for row in found.rows if row.ops)
    if found.by == "op" and live:
        series = (Series("live", "results", live),)
        yield Curve(key="live", title="Live bytes", x=tuple(range(len(live) + 1)), x_unit="op", stack=series)
