"""Durations: the time of each op of a step, where it is known from, and the file that keeps it."""

from __future__ import annotations

import hashlib
import os
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tensortide.errors import GraphError, GraphFileError
from tensortide.graph.file import SUFFIX as GRAPH_SUFFIX
from tensortide.graph.model import Graph
from tensortide.timing.measurement import Measurement
from tensortide.versioned import Format
from tensortide.write import write_file

FORMAT = Format("durations", "tensortide durations", (1, 2), GraphFileError, "make it again")
SUFFIX = ".durations.json"

_Nanoseconds = Annotated[int, msgspec.Meta(ge=0)]


class Durations(msgspec.Struct, frozen=True):
    """The time of one run of each op of a Graph, in nanoseconds, in the order of its ops.

    ``kind`` says how they are known, ``source`` says it in words: which device, which model, how often measured.
    ``unknown`` counts the ops that no rule prices and whose time is a stand-in. ``graph`` is the ``identity`` of the
    Graph whose ops these are. An op in a loop takes its time once per iteration. ``measurement`` describes how
    they were measured.
    """

    ns: tuple[_Nanoseconds, ...]
    source: str
    kind: Literal["estimated", "measured", "recorded"]
    unknown: _Nanoseconds = 0
    graph: str = ""
    measurement: Measurement | None = None

    def __len__(self) -> int:
        return len(self.ns)

    def __repr__(self) -> str:
        unknown = f", {self.unknown} of them without a rule" if self.unknown else ""
        return f"<Durations of {len(self.ns)} ops{unknown}: {sum(self.ns)} ns, {self.source}>"

    def check(self, graph: Graph) -> None:
        """Raise GraphError unless these are durations of ``graph``'s ops."""
        if len(self.ns) != len(graph):
            raise GraphError(f"durations of {len(self.ns)} ops ({self.source}) do not fit a graph of {len(graph)} ops")
        if self.graph != identity(graph):
            raise GraphError(f"these durations ({self.source}) are of another graph: its ops or their shapes differ")


def identity(graph: Graph) -> str:
    """Hexadecimal digest of everything a duration depends on: the ops in order, with their dtypes and shapes.

    Lifetimes, names and places in the user's code do not matter, nor on which device the step was captured.
    """
    names = [call.op.encode() for call in graph.calls]
    tensors = [f"{t.dtype}{[int(n) for n in t.shape]}".encode() for t in graph.tensors]
    digest = hashlib.sha256()
    for op in graph.ops:
        inputs, outputs = (b",".join([tensors[t] for t in side]) for side in (op.inputs, op.outputs))
        digest.update(b"%b(%b)->%b;" % (names[op.call], inputs, outputs))
    return digest.hexdigest()[:32]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    format: str = FORMAT.tag
    version: int = FORMAT.version
    durations: Durations


def save_durations(durations: Durations, path: str | os.PathLike[str]) -> Path:
    """Write ``durations`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    return write_file(path, msgspec.json.encode(_File(durations=durations)) + b"\n")


def load_durations(path: str | os.PathLike[str], graph: Graph | None = None) -> Durations:
    """Read durations, those of ``graph`` if it is given.

    Raises:
        GraphFileError: the file is missing, foreign, damaged or of another version, or of another graph.
    """
    durations = FORMAT.load(path, _File).durations
    FORMAT.decode(path, lambda: _check_columns(durations))
    if graph is not None:
        try:
            durations.check(graph)
        except GraphError as error:
            raise GraphFileError(f"{path}: {error}") from None
    return durations


def _check_columns(durations: Durations) -> None:
    """Raise ValueError unless every table has one entry per op."""
    found, count = durations.measurement, len(durations)
    if durations.unknown > count:
        raise ValueError("more ops unknown than there are")
    if found is not None and not (
        all(len(column) in (0, count) for column in found.columns()) and all(0 <= i < count for i in found.stand_ins)
    ):
        raise ValueError("its tables are not of one entry per op")


def beside(graph_file: str | os.PathLike[str]) -> Path:
    """Name the file in which the durations of a saved graph are looked for: ``x.durations.json`` of ``x.tide``."""
    path = Path(graph_file)
    return path.with_name(path.name.removesuffix(GRAPH_SUFFIX) + SUFFIX)


NANOSECOND = Fraction(1)
UNIT_CYCLE = Fraction(5, 6)
"""Nanoseconds of a cycle at 1.2 GHz, the unit of G10's traces."""


class Times(msgspec.Struct, frozen=True):
    """Durations of a step's ops: ``ticks`` of ``tick_ns`` nanoseconds each. Sums of ticks are exact."""

    ticks: tuple[int, ...]
    tick_ns: Fraction = NANOSECOND

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def total_ns(self) -> Fraction:
        """The time of the whole step, one op after the other."""
        return self.ns(sum(self.ticks))

    def ns(self, ticks: int) -> Fraction:
        """``ticks`` in nanoseconds, exactly."""
        return ticks * self.tick_ns

    def us(self, ticks: int) -> float:
        """``ticks`` in microseconds: the nearest number that a float can be."""
        return ticks * self.tick_ns.numerator / (1000 * self.tick_ns.denominator)

    def durations(self, graph: Graph, source: str) -> Durations:
        """The same in whole nanoseconds: the time from any op to any other is right to within 1 ns."""
        durations: list[int] = []
        past = reported = 0
        for ticks in self.ticks:
            past += ticks
            now = round(self.ns(past))
            durations.append(now - reported)
            reported = now
        return Durations(tuple(durations), source, "recorded", graph=identity(graph))


def times_of(durations: Durations) -> Times:
    """``durations`` as Times: a tick is a nanosecond."""
    return Times(durations.ns)
