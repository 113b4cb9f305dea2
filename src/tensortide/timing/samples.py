"""Measured times of ops by their exact call, kept by device and software: the surest time of the same call later.

A file of the store is a gzipped CSV table of one device and one software, to which measurements append rows.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tensortide.cost import Resolver, count
from tensortide.errors import GraphFileError
from tensortide.graph.model import Graph, OpView, Tensor
from tensortide.gzipped import GzipError, read_gzip
from tensortide.timing.durations import Durations
from tensortide.timing.estimates import Provenance
from tensortide.timing.forecast import ForecastRow
from tensortide.timing.intervals import FLOOR, FLOOR_MEASURED
from tensortide.timing.store import path_of, paths_of, same_threads, software_of
from tensortide.write import write_file

SUFFIX = ".csv.gz"
MODEL = "samples"
"""Name of what predicts a stored call."""

LEAST = 3
"""Times that a call was measured, at least, for its stored time to count as measured."""


ALONE = 0.17
"""Half-width of times measured alone: over eight steps they added up to 6 to 17 % less than the step."""


WIDEST = math.log(2)
"""Half-width of a stored time at most: times that scatter by more were measured on a disturbed machine."""


class Row(NamedTuple):
    """A call that was measured ``n`` times: what it is, what it asks for, and its times in nanoseconds."""

    op: str
    overload: str
    dtype: str
    in_shapes: str
    in_strides: str
    out_shapes: str
    attrs_hash: str
    flops: str
    read_bytes: str
    write_bytes: str
    t_med_ns: int
    t_min_ns: int
    t_p90_ns: int
    n: int
    clock: str
    cache: str
    launch: str
    flags: str

    @property
    def key(self) -> Key:
        """The call alone."""
        return self[: len(_KEY)]


Key = tuple[object, ...]
_KEY = ("op", "overload", "dtype", "in_shapes", "in_strides", "out_shapes", "attrs_hash")
_NUMBERS = ("t_med_ns", "t_min_ns", "t_p90_ns", "n")
_MOST_DIGITS = 15
"""Digits of a number at most: 10**15 ns are 12 days."""


# -- writing ----------------------------------------------------------------------------------------


def remember(
    graph: Graph, durations: Durations, device: str, *, resolver: Resolver | None = None, store: Path | None = None
) -> Path:
    """Append the measured calls of ``durations`` to the file of ``device`` and of the software that measured them.

    Raises GraphFileError if nothing was measured, or if the file is damaged; OutputError if it cannot be written.
    """
    found = durations.measurement
    durations.check(graph)
    if found is None or len(found.stand_ins) == len(graph):
        raise GraphFileError(f"nothing was measured: {durations.source}")
    path = path_of(device, "" if found.machine is None else software_of(found.machine), SUFFIX, store)
    rows = [*(read_rows(path) if path.is_file() else ()), *_rows(graph, durations, resolver)]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([Row._fields, *rows])
    return write_file(path, gzip.compress(text.getvalue().encode(), mtime=0), folders=True)


def _rows(graph: Graph, durations: Durations, resolver: Resolver | None) -> Iterator[Row]:
    found = durations.measurement
    assert found is not None
    costs = count(graph, resolver=resolver).costs
    times: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for op in graph:
        if op.index not in found.stand_ins and found.samples[op.index] and not op.is_view:
            times[key_of(op)].append(op.index)
    cache = "warm" if found.how == "isolated" else "step"
    for key, ops in times.items():
        cost = costs[ops[0]].cost
        sizes = ("", "", "") if cost is None else (cost.flops, cost.read_bytes, cost.written_bytes)
        medians = (
            round(statistics.median(column[op] for op in ops)) for column in (durations.ns, found.min_ns, found.p90_ns)
        )
        number = sum(found.samples[op] for op in ops)
        median, least, most = medians
        if not median:
            continue  # nothing of it ran on the clock
        texts = dict(zip(Row._fields, (*key, *map(str, sizes)), strict=False))
        numbers = {"t_med_ns": median, "t_min_ns": least, "t_p90_ns": most, "n": number}
        yield Row(**texts, **numbers, clock=found.clock, cache=cache, launch="eager", flags="")  # type: ignore[arg-type]


def key_of(op: OpView) -> tuple[str, ...]:
    """Return what makes a call the same: the op, its attributes, and dtypes, shapes and strides of its operands."""
    name, _, overload = op.name.rpartition(".")
    attributes = repr((op.call.arguments, op.call.returns)).encode()
    return (
        name,
        overload,
        " ".join(tensor.dtype for tensor in op.inputs),
        _numbers(tensor.shape for tensor in op.inputs),
        _numbers(tensor.strides for tensor in op.inputs),
        _numbers(_out(tensor) for tensor in op.outputs),
        hashlib.sha256(attributes).hexdigest()[:16],
    )


def _out(tensor: Tensor) -> tuple[int, ...]:
    return tensor.shape


def _numbers(sizes: Iterator[tuple[int, ...]]) -> str:
    return " ".join("x".join(str(int(n)) for n in one) or "-" for one in sizes)


# -- reading ----------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """Read a file of the store. Raises GraphFileError, which says where, if it is damaged."""
    try:
        table = list(csv.reader(read_gzip(path).decode().splitlines()))
    except GzipError as error:
        raise GraphFileError(f"{path}, a store of measured times, {error}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GraphFileError(f"{path} is a damaged store of measured times: {error}") from error
    if not table or tuple(table[0]) != Row._fields:
        raise GraphFileError(f"{path} is no store of measured times, or one of another version")
    rows: list[Row] = []
    for number, values in enumerate(table[1:], 2):
        given = dict(zip(Row._fields, values, strict=False))
        numbers = {name: _whole(given.get(name, "")) for name in _NUMBERS}
        median, least, most, times = numbers.values()
        if len(values) != len(Row._fields) or not (0 <= least <= median <= most and median and times > 0):
            raise GraphFileError(f"{path}, line {number}: a damaged store of measured times")
        rows.append(Row(**given)._replace(**numbers))  # type: ignore[arg-type]
    return rows


def _whole(text: str) -> int:
    """The number that is written, or -1 for what no measurement can be."""
    return int(text) if re.fullmatch(rf"[0-9]{{1,{_MOST_DIGITS}}}", text) else -1


def recall(
    graph: Graph, durations: Durations, device: str, software: str | None = None, *, store: Path | None = None
) -> Durations:
    """Replace predicted times of ``graph``'s ops by stored ones of the same call on ``device``.

    They are ``measured`` if they are of this ``software`` and ``LEAST`` times or more, else ``interpolated``. Without
    one, those of any software count, the newest file first.

    Raises GraphFileError if a file is damaged; then nothing is replaced.
    """
    if durations.forecast is None:
        return durations
    stored_calls = known(device, software, store)
    rows, index, ns = list(durations.forecast.rows), list(durations.forecast.index), list(durations.ns)
    places: dict[object, int] = {}
    found = 0
    for op in graph if stored_calls else ():
        stored = stored_calls.get(key_of(op))
        if stored is None:
            continue
        old = rows[index[op.index]]
        place = (old.family, old.bound, old.host_ns, stored.half, stored.provenance)
        if place not in places:
            places[place] = len(rows)
            half = stored.half
            rows.append(ForecastRow(old.family, half, half, stored.provenance, MODEL, old.bound, old.host_ns))
        index[op.index], ns[op.index] = places[place], max(1, stored.ns)
        found += 1
    if not found:
        return durations
    source = f"{durations.source}; {found:,} of {len(graph):,} ops by stored measurements"
    unknown = sum(rows[row].provenance is Provenance.UNKNOWN for row in index)
    forecast = msgspec.structs.replace(durations.forecast, rows=tuple(rows), index=tuple(index))
    return msgspec.structs.replace(durations, ns=tuple(ns), source=source, unknown=unknown, forecast=forecast)


class Stored(NamedTuple):
    """The stored time of a call, the half-width of its interval, and whether it is that of this software."""

    ns: int
    half: float
    provenance: Provenance


def known(device: str, software: str | None, store: Path | None) -> dict[Key, Stored]:
    """Collect what is stored of each call on ``device``: times of this software before those of others. On a CPU those
    of another number of threads do not count."""
    files = [file for file in paths_of(device, SUFFIX, store) if not software or same_threads(file.name, software)]
    own = path_of(device, software, SUFFIX, store) if software else None
    result: dict[Key, Stored] = {}
    for file in sorted(files, key=lambda file: file != own):
        for key, rows in _by_call(read_rows(file)).items():
            if key not in result:
                result[key] = _stored(rows, file == own)
    return result


def _stored(rows: Sequence[Row], same: bool) -> Stored:
    """Median time, and a half-width that covers the scatter of the times, up to a factor of 2. Calls that were
    measured alone, with warm caches, stand in where no step was."""
    in_step = [row for row in rows if row.cache != "warm"]
    ns = round(statistics.median(row.t_med_ns for row in in_step or rows))
    scatter = statistics.median(math.log(max(row.t_p90_ns, 1) / max(row.t_med_ns, 1)) for row in in_step or rows)
    if not in_step:
        return Stored(ns, max(ALONE, min(scatter, WIDEST)), Provenance.INTERPOLATED)
    measured = same and sum(row.n for row in in_step) >= LEAST
    floor, kind = (FLOOR_MEASURED, Provenance.MEASURED) if measured else (FLOOR, Provenance.INTERPOLATED)
    return Stored(ns, max(floor, min(scatter, WIDEST)), kind)


def _by_call(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    found: defaultdict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.key].append(row)
    return found
