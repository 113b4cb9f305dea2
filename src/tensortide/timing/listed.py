"""Durations from a plain list: CSV or JSON lines of an op, by index or name, and its nanoseconds."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

import msgspec

from tensortide.cost import Resolver
from tensortide.errors import TimesError
from tensortide.graph.model import Graph
from tensortide.timing.durations import Durations, identity
from tensortide.timing.kineto import read_bytes
from tensortide.timing.measurement import Measurement, sample
from tensortide.timing.standins import stand_in

__all__ = ["LISTS", "from_list"]

LISTS = (".csv", ".jsonl", ".csv.gz", ".jsonl.gz")
"""How the names of such files end."""


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
    ops = _Ops(graph)
    samples: list[list[float]] = [[] for _ in range(len(graph))]
    lines = 0
    for number, op, ns in _lines(path):
        lines += 1
        for index in ops.named(op, f"{path}, line {number}"):
            samples[index].append(ns)
    if not lines:
        raise TimesError(f"{path} lists no op")
    summaries = [sample(times) if times else None for times in samples]
    ns_or_none = [None if s is None else s.median_ns for s in summaries]
    filled, ceilings = stand_in(graph, ns_or_none, resolver=resolver)
    unknown = {index: "not in the list" for index, s in enumerate(summaries) if s is None}
    measurement = Measurement(
        how="list",
        clock="unknown",
        min_ns=tuple(0 if s is None else s.min_ns for s in summaries),
        p90_ns=tuple(0 if s is None else s.p90_ns for s in summaries),
        samples=tuple(map(len, samples)),
        stand_ins=unknown,
        ceilings=ceilings if unknown else None,
    )
    source = f"recorded in {path}: {len(graph) - len(unknown):,} of {len(graph):,} ops"
    return Durations(filled, source, "recorded", len(unknown), identity(graph), measurement)


class _Ops:
    """The ops that an index or a name stands for."""

    def __init__(self, graph: Graph) -> None:
        self._count = len(graph)
        self._by_name: dict[str, list[int]] = {}
        for index, op in enumerate(graph.ops):
            full = graph.calls[op.call].op
            for name in {full, full.rpartition(".")[0], op.label} - {""}:
                self._by_name.setdefault(name, []).append(index)

    def named(self, op: int | str, where: str) -> list[int]:
        """Indexes of ``op``. Raises TimesError, which says ``where``, if there is none."""
        if isinstance(op, str) and not op.strip().isdecimal():
            found = self._by_name.get(op.strip())
            if found is None:
                raise TimesError(f"{where}: the graph has no op {op!r}")
            return found
        if not 0 <= int(op) < self._count:
            raise TimesError(f"{where}: there is no op {op}: the graph has {self._count:,}, counted from 0")
        return [int(op)]


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, int | str, float]]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TimesError(f"{path} is no text in UTF-8: {error}") from error
    by_comma = str(path).removesuffix(".gz").endswith(".csv")
    for number, op, value in _csv(path, text) if by_comma else _json(path, text):
        ns = _number(value)
        if ns is None:
            raise TimesError(f"{path}, line {number}: {value!r} is no duration: a number of nanoseconds from 0 on")
        yield number, op, ns


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
    try:
        ns = float(value)
    except ValueError:
        return None
    return ns if 0 <= ns < 2**62 else None
