"""Circumstances of measured durations: platform, clock, dispersion, and the step's other time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Counts: TypeAlias = tuple[Count, ...]
Clock: TypeAlias = Literal["wall", "thread", "kernel", "unknown"]


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
    clock: Clock
    min_ns: Counts
    p90_ns: Counts
    samples: Counts
    machine: Platform | None = None
    wall_ns: Counts = ()
    thread_ns: Counts = ()
    step: Sample | None = None
    hooked: Sample | None = None
    hook_ns: int | None = None
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
