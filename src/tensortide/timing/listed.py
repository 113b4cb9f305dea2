"""Durations from a plain list: CSV or JSON lines of an op, by index or name, and its nanoseconds."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from tensortide.cost import Resolver
from tensortide.errors import TimesError
from tensortide.file_faults import reading
from tensortide.graph.model import Graph
from tensortide.gzipped import contents
from tensortide.timing.durations import Durations
from tensortide.timing.standins import from_samples

_INDEX = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MOST_UNPACKED = 64 << 20
"""Bytes that a compressed list may unpack to: a list of a million ops has 20 MB."""


class _Line(msgspec.Struct):
    op: int | str
    ns: float


def from_list(graph: Graph, path: str | os.PathLike[str], *, resolver: Resolver | None = None) -> Durations:
    """Durations of ``graph``'s ops as ``path`` lists them; several times of one op are samples of it.

    An op is an index, a name (``aten.mm.default``, ``aten.mm``: all ops of that name) or the label of an op that has
    one. CSV has the columns ``op`` and ``ns``; a header is optional. An op that is not listed is unknown, its time a
    stand-in.

    Raises:
        TimesError: the file cannot be read, or a line is wrong: the message has its number.
    """
    by_name: dict[str, list[int]] = {}
    for index, op in enumerate(graph.ops):
        full = graph.calls[op.call].op
        for name in {full, full.rpartition(".")[0], op.label} - {""}:
            by_name.setdefault(name, []).append(index)
    samples: list[list[float]] = [[] for _ in range(len(graph))]
    for number, named, value in _lines(path):
        where, ns = f"{path}, line {number}", _number(value)
        if ns is None:
            raise TimesError(f"{where}: {value!r} is no duration: a number of nanoseconds from 0 to 1e15")
        if isinstance(named, str) and not _INDEX.fullmatch(named.strip()):
            found = by_name.get(named.strip(), [])
            if not found:
                raise TimesError(f"{where}: the graph has no op {named!r}")
        elif len(str(named)) > 18 or not 0 <= int(named) < len(graph):
            raise TimesError(f"{where}: there is no op {named}: the graph has {len(graph):,}, counted from 0")
        else:
            found = [int(named)]
        for index in found:
            samples[index].append(ns)
    if not any(samples):
        raise TimesError(f"{path} lists no op")
    source = f"{path}: {sum(map(bool, samples)):,} of {len(graph):,} ops"
    return from_samples(
        graph,
        samples,
        missing=lambda index: "not in the list",
        source=source,
        resolver=resolver,
        how="list",
        clock="unknown",
    )


def _lines(path: str | os.PathLike[str]) -> Sequence[tuple[int, int | str, str | float]]:
    """The number of each line, its op and its duration."""
    try:
        with reading(path, TimesError):
            text = contents(path, TimesError, most_bytes=_MOST_UNPACKED).decode("utf-8-sig")
            return list(_json(path, text) if text.lstrip().startswith("{") else _csv(path, text))
    except (UnicodeDecodeError, csv.Error) as error:
        raise TimesError(f"{path} is no list of times in UTF-8: {error}") from error


def _csv(path: str | os.PathLike[str], text: str) -> Iterator[tuple[int, str, str]]:
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or (number == 1 and row[0].strip() in ("op", "index", "name")):
            continue
        if len(row) != 2:
            raise TimesError(f"{path}, line {number}: it takes two columns, op and ns, not {len(row)}")
        yield number, row[0], row[1]


def _json(path: str | os.PathLike[str], text: str) -> Iterator[tuple[int, int | str, float]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise TimesError(f'{path}, line {number}: it takes {{"op": 3, "ns": 1200}}: {error}') from error
        yield number, entry.op, entry.ns


def _number(value: str | float) -> float | None:
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    ns = float(value)
    return ns if 0 <= ns <= 1e15 else None
