"""A liveness analysis as tables, in full precision: JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from tensortide.errors import OutputError
from tensortide.reports.liveness_files.lives import Order, TimedLives

__all__ = ["Table", "render_csv", "render_json", "render_parquet", "tables"]


class Table(NamedTuple):
    """Columns with names, and rows of as many values."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def tables(timed: TimedLives, order: Order = "creation") -> dict[str, Table]:
    """``kernels``, ``tensors``, ``liveness_analysis``, ``TensorPeriodLog`` and ``NNMemConsumptionLog``. Times are in
    nanoseconds: whole where they are, else the nearest float."""
    return {
        "kernels": _kernels(timed),
        "tensors": _tensors(timed),
        "liveness_analysis": _lives(timed),
        "TensorPeriodLog": _periods(timed, order),
        "NNMemConsumptionLog": _memory(timed),
    }


def render_json(table: Table) -> bytes:
    """A list of records, one per line."""
    records = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    return b"[\n" + b",\n".join(map(msgspec.json.encode, records)) + b"\n]\n"


def render_csv(table: Table) -> str:
    """A header and rows; lists are joined by spaces, what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([" ".join(map(str, cell)) if isinstance(cell, tuple) else _plain(cell) for cell in row])
    return out.getvalue()


def render_parquet(table: Table) -> bytes:
    """A Parquet file.

    Raises:
        OutputError: PyArrow is not installed.
    """
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise OutputError("writing Parquet needs PyArrow: pip install pyarrow") from error
    columns = {name: [row[at] for row in table.rows] for at, name in enumerate(table.columns)}
    out = io.BytesIO()
    parquet.write_table(arrow.table({name: _column(name, cells) for name, cells in columns.items()}), out)
    return out.getvalue()


def _column(name: str, cells: list[Any]) -> list[Any]:
    """``cells`` of one type: a time is a float throughout if one is."""
    if name.endswith("_ns"):
        return cells if all(isinstance(cell, int) for cell in cells) else [float(cell) for cell in cells]
    return [list(cell) if isinstance(cell, tuple) else cell for cell in cells]


def _plain(cell: object) -> object:
    return int(cell) if isinstance(cell, bool) else cell


def _ns(time: Fraction) -> int | float:
    return time.numerator if time.denominator == 1 else float(time)


def _kernels(timed: TimedLives) -> Table:
    graph = timed.trace.graph
    columns = ("kernel", "name", "op", "phase", "inputs", "outputs", "time_ns", "file", "line", "code")
    rows: list[tuple[Any, ...]] = []
    for index, op in enumerate(graph.ops):
        source = graph[index].source
        place = ("", None, "") if source is None else (source.file, source.line, source.code)
        operands = (tuple(dict.fromkeys(op.inputs)), tuple(dict.fromkeys(op.outputs)))
        time = _ns(timed.times.ns(timed.times.ticks[index]))
        name = timed.trace.kernels[index]
        rows.append((index, name, graph.calls[op.call].op, op.phase.value, *operands, time, *place))
    return Table(columns, rows)


def _tensors(timed: TimedLives) -> Table:
    columns = ("tensor", "name", "is_global", "nbytes", "dtype", "shape")
    named = zip(timed.trace.graph.tensors, timed.trace.tensors, timed.lasting, timed.lives, strict=True)
    return Table(
        columns,
        [(life.index, name, lasts, life.nbytes, tensor.dtype, tensor.shape) for tensor, name, lasts, life in named],
    )


def _lives(timed: TimedLives) -> Table:
    columns = ("tensor", "is_global", "birth", "death", "uses", "periods")
    named: Iterable[Any] = zip(timed.lives, timed.lasting, strict=True)
    return Table(
        columns,
        [(life.index, lasts, life.birth, life.death, life.uses, len(life.periods)) for life, lasts in named],
    )


def _periods(timed: TimedLives, order: Order) -> Table:
    columns = ("tensor", "period", "start", "end", "looped", "nbytes", "time_ns")
    return Table(
        columns,
        [
            (row.tensor, row.number, row.start, row.end, row.looped, row.nbytes, _ns(timed.times.ns(row.ticks)))
            for row in timed.periods(order)
        ],
    )


def _memory(timed: TimedLives) -> Table:
    columns = ("kernel", "active", "input", "weight", "intermediate", "total", "live", "global_weight", "input_size")
    series = timed.series
    rows = zip(series.active, series.active_breakdown, series.total, series.live, strict=True)
    return Table(
        columns,
        [
            (index, active, *parts, total, live, series.global_weight, series.input_size)
            for index, (active, parts, total, live) in enumerate(rows)
        ],
    )
