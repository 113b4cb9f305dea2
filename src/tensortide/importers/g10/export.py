"""A liveness analysis as files: in the layouts of the tensor liveness tool, and the same as tables."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from tensortide.errors import OutputError
from tensortide.importers.g10.analysis import Order, TimedLives, timed_lives
from tensortide.importers.g10.export_text import texts
from tensortide.importers.imported import Imported
from tensortide.parquet import parquet
from tensortide.timing.durations import Times
from tensortide.write import write_files

Format: TypeAlias = Literal["config", "json", "csv", "parquet"]
"""``config``: the layouts of the tensor liveness tool, times in us of 6 digits. The others: tables, times in ns."""
Table: TypeAlias = dict[str, list[Any]]
"""Columns of equal length by name."""


def write_liveness_files(
    trace: Imported,
    folder: str | os.PathLike[str],
    *,
    times: Times | None = None,
    with_times: bool = False,
    order: Order = "creation",
    formats: Sequence[Format] = ("config",),
    log_suffix: str = "",
) -> tuple[Path, ...]:
    """Write the liveness of ``trace`` to ``folder`` and beside it: all files or none. Return their paths.

    ``folder/statistics`` gets ``kernels``, ``tensors`` and ``liveness_analysis``; beside the folder, with its name in
    front, are ``_TensorPeriodLog`` and ``_NNMemConsumptionLog``: ``.config`` and ``.py`` in the layouts of the tensor
    liveness tool, or tables with the name of the format. There ``folder`` is ``results/<model>/pytorch<batch>``.

    ``times``: of the kernels, if not the trace's own. ``with_times`` puts them into ``kernels.config``. ``order``: of
    the periods in ``TensorPeriodLog``. ``log_suffix`` follows the name of the folder in the names of the two logs.

    Raises:
        TraceError: the kernels have no times, or tensors no size.
        OutputError: something cannot be written, ``folder`` has no name, ``log_suffix`` is no part of a name, or
            PyArrow is missing for ``parquet``.
    """
    place = Path(folder)
    if not place.name:
        raise OutputError(f"{os.fspath(folder)!r} is no name for files: name a folder, such as results/net/pytorch64")
    if log_suffix != Path(log_suffix).name:
        raise OutputError(f"{log_suffix!r} is no part of a file's name: give the suffix of the logs without a folder")
    timed = timed_lives(trace, times)
    contents: dict[Path, str | bytes] = {}
    if "config" in formats:
        contents |= {_path(place, name, log_suffix): text for name, text in texts(timed, with_times, order).items()}
    for kind in (kind for kind in formats if kind in _RENDERERS):
        made = {name: _RENDERERS[kind](table) for name, table in _tables(timed, order).items()}
        contents |= {_path(place, f"{name}.{kind}", log_suffix): data for name, data in made.items()}
    return write_files(contents, replaces=".py")  # the logs of the original tool are called so


def _path(folder: Path, name: str, log_suffix: str) -> Path:
    """Logs, whose names begin with a capital letter, lie beside the folder."""
    return folder.with_name(f"{folder.name}{log_suffix}_{name}") if name[0].isupper() else folder / "statistics" / name


def _tables(timed: TimedLives, order: Order) -> dict[str, Table]:
    """Make the tables that the files of the tensor liveness tool hold.

    Times are in nanoseconds: whole where they are, else the nearest float.
    """
    return {
        "kernels": _kernels(timed),
        "tensors": _tensors(timed),
        "liveness_analysis": _liveness(timed),
        "TensorPeriodLog": _periods(timed, order),
        "NNMemConsumptionLog": _consumption(timed),
    }


def _kernels(timed: TimedLives) -> Table:
    graph = timed.trace.graph
    sources = [graph[index].source for index in range(len(graph))]
    return {
        "kernel": [*range(len(graph))],
        "name": [*timed.trace.kernels],
        "op": [graph.calls[op.call].op for op in graph.ops],
        "phase": [op.phase.value for op in graph.ops],
        "inputs": [tuple(dict.fromkeys(op.inputs)) for op in graph.ops],
        "outputs": [tuple(dict.fromkeys(op.outputs)) for op in graph.ops],
        "time_ns": [_ns(timed.times.ns(ticks)) for ticks in timed.times.ticks],
        "file": [source.file if source else "" for source in sources],
        "line": [source.line if source else None for source in sources],
        "code": [source.code if source else "" for source in sources],
    }


def _tensors(timed: TimedLives) -> Table:
    tensors = timed.trace.graph.tensors
    return {
        "tensor": [life.index for life in timed.lives],
        "name": [*timed.trace.tensors],
        "is_global": [*timed.lasting],
        "nbytes": [life.nbytes for life in timed.lives],
        "dtype": [tensor.dtype for tensor in tensors],
        "shape": [tensor.shape for tensor in tensors],
    }


def _liveness(timed: TimedLives) -> Table:
    lives = timed.lives
    return {
        "tensor": [life.index for life in lives],
        "is_global": [*timed.lasting],
        "birth": [life.birth for life in lives],
        "death": [life.death for life in lives],
        "uses": [life.uses for life in lives],
        "periods": [len(life.intervals) for life in lives],
    }


def _periods(timed: TimedLives, order: Order) -> Table:
    periods = timed.periods(order)
    return {
        "tensor": [life.index for life, _, _ in periods],
        "period": [number for _, number, _ in periods],
        "start": [interval.start for _, _, interval in periods],
        "end": [interval.end for _, _, interval in periods],
        "looped": [interval.looped for _, _, interval in periods],
        "nbytes": [life.nbytes for life, _, _ in periods],
        "time_ns": [_ns(timed.times.ns(int(interval.time))) for _, _, interval in periods],
    }


def _consumption(timed: TimedLives) -> Table:
    series, count = timed.series, len(timed.trace.graph)
    kinds = ("input", "weight", "intermediate")
    return {
        "kernel": [*range(count)],
        "active": [*series.active],
        **{name: [part[at] for part in series.active_breakdown] for at, name in enumerate(kinds)},
        "total": [*series.total],
        "live": [*series.live],
        "global_weight": [series.global_weight] * count,
        "input_size": [series.input_size] * count,
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


def _plain(cell: object) -> object:
    return int(cell) if isinstance(cell, bool) else cell


def _ns(time: Fraction) -> int | float:
    return time.numerator if time.denominator == 1 else float(time)


_RENDERERS: dict[str, Callable[[Table], str | bytes]] = {"json": _json, "csv": _csv, "parquet": parquet}
