"""Durations: the time of each op of a step, where it is known from, how it was measured, and the file that keeps it."""

from __future__ import annotations

import hashlib
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from tensortide.errors import GraphError, GraphFileError
from tensortide.graph.file import SUFFIX as GRAPH_SUFFIX
from tensortide.graph.model import Graph
from tensortide.shown import Show
from tensortide.timing.forecast import Forecast
from tensortide.versioned import Format
from tensortide.write import write_file

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Counts: TypeAlias = tuple[Count, ...]
_MOST_NS = 1 << 60  # of a step, 36 years: sums must fit in 64 bits, those with recomputation too
ClockName: TypeAlias = Literal["wall", "thread", "kernel", "unknown"]


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """Platform that ran the ops. Empty texts and None are unknown.

    ``device`` is ``cpu`` or the kind of accelerator, ``isa`` the vector instructions that the framework chose,
    ``cores`` those that the process may use, ``load_*`` the load averages of one minute around the measurement.
    """

    device: str
    name: str
    isa: str = ""
    threads: int | None = None
    cores: int | None = None
    governor: str = ""
    load_before: float | None = None
    load_after: float | None = None
    versions: dict[str, str] = {}


class Sample(msgspec.Struct, frozen=True):
    """One quantity measured ``n`` times, in nanoseconds. ``p90_ns`` is the smallest value that 90 % do not exceed."""

    median_ns: int
    min_ns: int
    p90_ns: int
    n: int


class Ceilings(msgspec.Struct, frozen=True):
    """The highest rates that measured ops reached: a roof for ops that could not be measured."""

    flops_per_s: float
    bytes_per_s: float


def sample(times: Iterable[float]) -> Sample:
    """The Sample of ``times`` in nanoseconds, of which there is at least one."""
    ordered = sorted(times)
    n = len(ordered)
    return Sample(round(statistics.median(ordered)), round(ordered[0]), round(ordered[-(-9 * n // 10) - 1]), n)


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Measurement of the durations of a Graph's ops.

    ``how``: in the running ``step``, each distinct op alone (``isolated``), from a ``trace`` that a profiler wrote, or
    from a ``list`` of times. ``clock`` is that of the durations: wall time, processor time of the calling thread, the
    device's own record of its kernels, or whatever the list's author had. ``min_ns``, ``p90_ns`` and ``samples`` have
    one entry per op; so have ``wall_ns`` and ``thread_ns``, the medians by both clocks where both were read.

    ``step`` is the ordinary step by the same clock, with nothing hooked into it; ``hooked`` the same step while its ops
    were timed; ``hook_ns`` what the hook is known to cost of that, measured on other ops. ``overhead_ns`` is the host's
    work between the ops, the hook's cost taken off, by phase. ``warm_up`` steps came first, until two in a row differed
    by less than 5 % (``steady``).

    ``stand_ins`` are the ops that could not be measured, with the reason; their durations are estimates under
    ``ceilings``.
    """

    how: Literal["step", "isolated", "trace", "list"]
    clock: ClockName
    min_ns: Counts
    p90_ns: Counts
    samples: Counts
    machine: Platform | None = None
    wall_ns: Counts = ()
    thread_ns: Counts = ()
    step: Sample | None = None
    hooked: Sample | None = None
    hook_ns: Annotated[int | None, Show("Timing overhead, subtracted", if_any=True)] = None
    overhead_ns: dict[str, int] = {}
    warm_up: int = 0
    steady: bool = True
    stand_ins: dict[int, str] = {}
    ceilings: Ceilings | None = None
    notes: tuple[str, ...] = ()

    def explained_ns(self, ns: Sequence[int]) -> int:
        """Add the host's work between the ops to ``ns``, the time of the ops."""
        return sum(ns) + sum(self.overhead_ns.values())

    def columns(self) -> tuple[Counts, ...]:
        """The tables that have one entry per op, if they are there."""
        return (self.min_ns, self.p90_ns, self.samples, self.wall_ns, self.thread_ns)

    def times_ns(self) -> Iterator[int]:
        """All times, of ops and of steps, but what the hook and the host are known to take."""
        for column in (self.min_ns, self.p90_ns, self.wall_ns, self.thread_ns):
            yield from column
        for step in (self.step, self.hooked):
            if step is not None:
                yield from (step.min_ns, step.median_ns, step.p90_ns)


FORMAT = Format("durations", "tensortide durations", (5,), GraphFileError, "make it again")
SUFFIX = ".durations.json"


class Durations(msgspec.Struct, frozen=True):
    """The time of one run of each op of a Graph, in nanoseconds, in the order of its ops.

    ``kind`` says how they are known, ``source`` says it in words: which device, which model, how often measured.
    ``unknown`` counts the ops that no rule prices and whose time is a stand-in. ``graph`` is the ``identity`` of the
    Graph whose ops these are. An op in a loop takes its time once per iteration. ``measurement`` describes how
    they were measured, ``forecast`` what predicted ones rest on.
    """

    ns: Counts
    source: str
    kind: Literal["estimated", "measured", "recorded"]
    unknown: Count = 0
    graph: str = ""
    measurement: Measurement | None = None
    forecast: Forecast | None = None

    def __post_init__(self) -> None:
        if (total := sum(self.ns)) >= _MOST_NS:
            raise GraphError(f"the step takes {total} ns ({self.source}): durations of over 36 years are not supported")

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
    durations: Durations = FORMAT.load(path, _File).durations
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
    if found is not None and not all(0 <= ns < _MOST_NS for ns in found.times_ns()):
        raise ValueError("its times are not from 0 to 36 years")
    forecast = durations.forecast
    if forecast is not None and (len(forecast.index) != count or max(forecast.index, default=-1) >= len(forecast.rows)):
        raise ValueError("its forecast is not of one row per op")


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
