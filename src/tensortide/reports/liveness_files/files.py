"""The folders and names of a liveness analysis's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from tensortide.errors import OutputError
from tensortide.importers.imported import Imported
from tensortide.reports.liveness_files import text
from tensortide.reports.liveness_files.lives import Order, TimedLives, timed_lives
from tensortide.reports.liveness_files.tables import Table, render_csv, render_json, render_parquet, tables
from tensortide.timing.exact import Times
from tensortide.write import write_files

__all__ = ["FORMATS", "Format", "write_liveness_files"]

Format: TypeAlias = Literal["config", "json", "csv", "parquet"]

_TABLES: dict[str, Callable[[Table], str | bytes]] = {
    "json": render_json,
    "csv": render_csv,
    "parquet": render_parquet,
}
FORMATS: tuple[str, ...] = ("config", *_TABLES)
"""``config``: the layouts of the tensor liveness tool, times in us of 6 digits. The others: tables, times in ns."""


def write_liveness_files(
    trace: Imported,
    folder: str | os.PathLike[str],
    run: str,
    *,
    times: Times | None = None,
    with_times: bool = False,
    order: Order = "creation",
    formats: Sequence[Format] = ("config",),
) -> tuple[Path, ...]:
    """Write the liveness of ``trace`` to ``folder``: all files or none. Returns their paths.

    ``run/statistics/`` gets ``kernels``, ``tensors`` and ``liveness_analysis``; beside it are ``run_TensorPeriodLog``
    and ``run_NNMemConsumptionLog``: ``.config`` and ``.py`` in the layouts of the tensor liveness tool, or tables with
    the name of the format. ``folder`` is ``results/<model>`` and ``run`` ``pytorch<batch>`` there.

    ``times``: of the kernels, if not the trace's own. ``with_times`` puts them into ``kernels.config``. ``order``: of
    the periods in ``TensorPeriodLog``.

    Raises:
        TraceError: the kernels have no times, or tensors no size.
        OutputError: something cannot be written, ``run`` is no name, or PyArrow is missing for ``parquet``.
    """
    if not run or Path(run).name != run:
        raise OutputError(f"{run!r} is no name for files: give one without a folder, such as pytorch64")
    timed = timed_lives(trace, times)
    place = Path(folder)
    contents: dict[Path, str | bytes] = {}
    if "config" in formats:
        contents.update({place / name: content for name, content in _configs(timed, run, with_times, order).items()})
    found = tables(timed, order) if set(formats) & _TABLES.keys() else {}
    for name, table in found.items():
        for format in formats:
            if format in _TABLES:
                beside = name[0].isupper()
                path = place / (f"{run}_{name}" if beside else f"{run}/statistics/{name}")
                contents[path.with_name(f"{path.name}.{format}")] = _TABLES[format](table)
    return write_files(contents)


def _configs(timed: TimedLives, run: str, with_times: bool, order: Order) -> dict[str, str]:
    return {
        f"{run}/statistics/kernels.config": text.kernels_config(timed, with_times=with_times),
        f"{run}/statistics/tensors.config": text.tensors_config(timed),
        f"{run}/statistics/liveness_analysis.config": text.liveness_config(timed),
        f"{run}_TensorPeriodLog.py": text.periods_log(timed, order),
        f"{run}_NNMemConsumptionLog.py": text.memory_log(timed),
    }
