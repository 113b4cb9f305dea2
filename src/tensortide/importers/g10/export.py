"""A liveness analysis as files: in the layouts of the tensor liveness tool, and the same as tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from tensortide.collector import no_collection
from tensortide.errors import OutputError, TraceError
from tensortide.importers.imported import Imported
from tensortide.timelines.compat import CompatSeries, compat_series
from tensortide.timelines.intervals import Life, Period, lasting_tensors, liveness
from tensortide.timing.exact import Times
from tensortide.write import write_files

__all__ = ["Format", "Order", "TimedLives", "timed_lives", "write_liveness_files"]

Format: TypeAlias = Literal["config", "json", "csv", "parquet"]
"""``config``: the layouts of the tensor liveness tool, times in us of 6 digits. The others: tables, times in ns."""
Order: TypeAlias = Literal["creation", "time_size"]


class TimedLives(msgspec.Struct, frozen=True):
    """A step with times; ``lives`` in mode ``compat``; ``lasting`` says which tensors live across steps."""

    trace: Imported
    times: Times
    lives: tuple[Life, ...]
    lasting: tuple[bool, ...]
    series: CompatSeries

    def periods(self, order: Order = "creation") -> list[tuple[Life, int, Period]]:
        """List the periods with their numbers, by tensor and then by start, or by time x size, largest first."""
        rows = [(life, number, period) for life in self.lives for number, period in enumerate(life.periods)]
        return rows if order == "creation" else sorted(rows, key=lambda row: -row[0].nbytes * int(row[2].time or 0))


@no_collection()
def timed_lives(trace: Imported, times: Times | None = None) -> TimedLives:
    """Analyse the tensors of ``trace`` with its own times, or ``times``.

    Raises:
        TraceError: there are no times, or sizes of tensors are unknown: files have numbers only.
    """
    times = times or trace.times
    name = trace.graph.meta.workload
    if times is None:
        raise TraceError(f"{name}: its kernels have no times, and the files of a liveness analysis need them")
    if len(times) != len(trace.graph):
        raise TraceError(f"{name}: {len(times)} times for {len(trace.graph)} kernels")
    if trace.unknown:
        first, count = trace.tensors[trace.unknown[0]], len(trace.unknown)
        raise TraceError(
            f"{name}: the sizes of {count} tensors are unknown ({first}, ...): give values for their symbols"
        )
    lives = liveness(trace.graph, "compat", times.ticks)
    return TimedLives(trace, times, lives, tuple(lasting_tensors(trace.graph)), compat_series(trace.graph, lives))


def write_liveness_files(
    trace: Imported,
    folder: str | os.PathLike[str],
    *,
    times: Times | None = None,
    with_times: bool = False,
    order: Order = "creation",
    formats: Sequence[Format] = ("config",),
) -> tuple[Path, ...]:
    """Write the liveness of ``trace`` to ``folder`` and beside it: all files or none. Return their paths.

    ``folder/statistics`` gets ``kernels``, ``tensors`` and ``liveness_analysis``; beside the folder, with its name in
    front, are ``_TensorPeriodLog`` and ``_NNMemConsumptionLog``: ``.config`` and ``.py`` in the layouts of the tensor
    liveness tool, or tables with the name of the format. There ``folder`` is ``results/<model>/pytorch<batch>``.

    ``times``: of the kernels, if not the trace's own. ``with_times`` puts them into ``kernels.config``. ``order``: of
    the periods in ``TensorPeriodLog``.

    Raises:
        TraceError: the kernels have no times, or tensors no size.
        OutputError: something cannot be written, ``folder`` has no name, or PyArrow is missing for ``parquet``.
    """
    from tensortide.importers.g10.export_tables import RENDERERS, tables
    from tensortide.importers.g10.export_text import texts

    place = Path(folder)
    if not place.name:
        raise OutputError(f"{os.fspath(folder)!r} is no name for files: name a folder, such as results/net/pytorch64")
    timed = timed_lives(trace, times)
    contents: dict[Path, str | bytes] = {}
    if "config" in formats:
        contents |= {_path(place, name): text for name, text in texts(timed, with_times, order).items()}
    for kind in (kind for kind in formats if kind in RENDERERS):
        made = {name: RENDERERS[kind](table) for name, table in tables(timed, order).items()}
        contents |= {_path(place, f"{name}.{kind}"): data for name, data in made.items()}
    return write_files(contents)


def _path(folder: Path, name: str) -> Path:
    """Logs, whose names begin with a capital letter, lie beside the folder."""
    return folder.with_name(f"{folder.name}_{name}") if name[0].isupper() else folder / "statistics" / name
