"""A liveness analysis as tables, in full precision: JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import msgspec

from tensortide.errors import OutputError
from tensortide.importers.g10.export import Order, TimedLives

__all__ = ["RENDERERS", "tables"]

Table: TypeAlias = dict[str, list[Any]]
"""Columns of equal length by name."""


def tables(timed: TimedLives, order: Order = "creation") -> dict[str, Table]:
    """Make the tables that the files of the tensor liveness tool hold.

    Times are in nanoseconds: whole where they are, else the nearest float.
    """
    graph, trace, lives, series = timed.trace.graph, timed.trace, timed.lives, timed.series
    sources = [graph[index].source for index in range(len(graph))]
    periods = timed.periods(order)
    return {
        "kernels": {
            "kernel": [*range(len(graph))],
            "name": [*trace.kernels],
            "op": [graph.calls[op.call].op for op in graph.ops],
            "phase": [op.phase.value for op in graph.ops],
            "inputs": [tuple(dict.fromkeys(op.inputs)) for op in graph.ops],
            "outputs": [tuple(dict.fromkeys(op.outputs)) for op in graph.ops],
            "time_ns": [_ns(timed.times.ns(ticks)) for ticks in timed.times.ticks],
            "file": [source.file if source else "" for source in sources],
            "line": [source.line if source else None for source in sources],
            "code": [source.code if source else "" for source in sources],
        },
        "tensors": {
            "tensor": [life.index for life in lives],
            "name": [*trace.tensors],
            "is_global": [*timed.lasting],
            "nbytes": [life.nbytes for life in lives],
            "dtype": [tensor.dtype for tensor in graph.tensors],
            "shape": [tensor.shape for tensor in graph.tensors],
        },
        "liveness_analysis": {
            "tensor": [life.index for life in lives],
            "is_global": [*timed.lasting],
            "birth": [life.birth for life in lives],
            "death": [life.death for life in lives],
            "uses": [life.uses for life in lives],
            "periods": [len(life.periods) for life in lives],
        },
        "TensorPeriodLog": {
            "tensor": [life.index for life, _, _ in periods],
            "period": [number for _, number, _ in periods],
            "start": [period.start for _, _, period in periods],
            "end": [period.end for _, _, period in periods],
            "looped": [period.looped for _, _, period in periods],
            "nbytes": [life.nbytes for life, _, _ in periods],
            "time_ns": [_ns(timed.times.ns(int(period.time or 0))) for _, _, period in periods],
        },
        "NNMemConsumptionLog": {
            "kernel": [*range(len(graph))],
            "active": [*series.active],
            **{
                name: [part[at] for part in series.active_breakdown]
                for at, name in enumerate(("input", "weight", "intermediate"))
            },
            "total": [*series.total],
            "live": [*series.live],
            "global_weight": [series.global_weight] * len(graph),
            "input_size": [series.input_size] * len(graph),
        },
    }


def _json(table: Table) -> bytes:
    """Write a list of records, one per line."""
    records = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    return b"[\n" + b",\n".join(map(msgspec.json.encode, records)) + b"\n]\n"


def _csv(table: Table) -> str:
    """Write a header and rows; lists are joined by spaces, what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow([" ".join(map(str, cell)) if isinstance(cell, tuple) else _plain(cell) for cell in row])
    return out.getvalue()


def _parquet(table: Table) -> bytes:
    """Write a Parquet file; a time is a float throughout if one is. Raises OutputError if PyArrow is missing."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise OutputError("writing Parquet needs PyArrow: pip install pyarrow") from error
    columns = {name: [list(cell) if isinstance(cell, tuple) else cell for cell in table[name]] for name in table}
    if any(isinstance(cell, float) for cell in table.get("time_ns", ())):
        columns["time_ns"] = [*map(float, table["time_ns"])]
    out = io.BytesIO()
    parquet.write_table(arrow.table(columns), out)
    return out.getvalue()


def _plain(cell: object) -> object:
    return int(cell) if isinstance(cell, bool) else cell


def _ns(time: Fraction) -> int | float:
    return time.numerator if time.denominator == 1 else float(time)


RENDERERS: dict[str, Callable[[Table], str | bytes]] = {"json": _json, "csv": _csv, "parquet": _parquet}
