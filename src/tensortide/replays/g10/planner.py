"""G10's planner, as its authors document it: an estimate of resident bytes, moves of the largest benefit, fetches as
early as the estimate allows, and for its tensor-granular variants moves by force across the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tensortide.replays.g10 import greedy
from tensortide.replays.g10.machine import ALLOCATION_NS, GIB, PAGE, G10Machine, Ints, Trace
from tensortide.replays.g10.outcome import Move, Tier
from tensortide.search_limit import Look, attended, no_look

SAFE = 2.5
"""A period is long enough for a tier if it lasts this many transfers."""
TARGET = 0.99
"""Part of the device memory that is planned for."""
FORCED = 0.9
"""Part of the memory below which forced moves bring the peak."""
LOOSENED = 1.06
"""Times its memory that the tensor-granular variants plan for; the original has other factors for some models."""
_BINARY = GIB / 10**9
"""The planner's rates are in units of 2**30 bytes, and the machine's in 10**9."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Result of G10's planner: ``moves``, those ``forced`` (which are fetched on demand), for each tensor the kernel
    at whose start it is ``preallocated`` (-1: never), and ``freed``: kernels and the tensors known to be dead then."""

    moves: tuple[Move, ...]
    forced: tuple[Move, ...]
    preallocated: tuple[int, ...]
    freed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Period:
    """A period in which ``tensor`` is not used: from kernel ``begin`` until ``end``, over the end of the step if it
    ``wraps``."""

    tensor: int
    begin: int
    end: int
    ns: int
    nbytes: int
    wraps: bool = False


def periods(trace: Trace) -> list[Period]:
    """List the idle periods, the largest product of time and bytes first."""
    clock = np.concatenate(([0], np.cumsum(trace.ns))).tolist()
    count, deaths = len(trace), trace.deaths
    found: list[Period] = []
    for tensor, uses in enumerate(trace.uses):
        nbytes = int(trace.pages[tensor]) * PAGE
        live = [use for use in uses if use < deaths[tensor]]
        for one, two in pairwise(live):
            if two > one + 1:
                found.append(Period(tensor, one + 1, two, clock[two] - clock[one + 1], nbytes))
        if trace.lasts[tensor] and live:
            last, first = live[-1], live[0]
            if last < count - 1:
                found.append(
                    Period(tensor, last + 1, first, clock[-1] - clock[last + 1] + clock[first], nbytes, wraps=True)
                )
            elif first:
                found.append(Period(tensor, 0, first, clock[first], nbytes))
    return sorted(found, key=lambda period: (-period.ns * period.nbytes, period.tensor, period.begin))


def preallocations(trace: Trace) -> list[int]:
    """For each tensor that does not last the kernel at whose start its memory is requested: early enough to allocate it
    before the first that uses it starts; -1 if that is the first kernel of all, or none."""
    found = [-1] * len(trace.pages)
    for tensor, uses in enumerate(trace.uses):
        if trace.lasts[tensor] or not uses:
            continue
        kernel, left = uses[0], float(int(trace.pages[tensor]) * PAGE * ALLOCATION_NS)
        while kernel and left > 0:
            kernel -= 1
            left -= int(trace.ns[kernel])
        found[tensor] = kernel
    return found


def estimate(trace: Trace, early: Sequence[int], target: int) -> tuple[Ints, list[int]]:
    """Bytes that are resident during each kernel, and the tensors whose lifetimes they know.

    Everything counts always, tensor 0 twice, until the lifetimes of the tensors so far bring it below ``target``.
    """
    level = np.full(len(trace), int(trace.pages.sum() + trace.pages[:1].sum()) * PAGE)
    known: list[int] = []
    for tensor, death in enumerate(trace.deaths):
        if not tensor or trace.lasts[tensor] or early[tensor] < 0:
            continue
        nbytes = int(trace.pages[tensor]) * PAGE
        level[: early[tensor]] -= nbytes
        level[death:] -= nbytes
        known.append(tensor)
        if level.max() <= target:
            break
    return level, known


def scheme(
    trace: Trace, machine: G10Machine, *, host: bool = True, granular: bool = False, look: Look = no_look
) -> Scheme:
    """Plan the moves of a trace; without ``host`` over the drive alone, ``granular`` for whole tensors. ``look`` is
    called now and then; it may raise."""
    memory = int(machine.device_bytes * (LOOSENED if granular else 1.0))
    target, early = int(memory * TARGET), preallocations(trace)
    level, known = estimate(trace, early, target)
    idle = periods(trace)
    if not idle:
        return Scheme((), (), tuple(early), ())
    peak = int(level.argmax())
    table = _table(idle, machine)
    over, stop = np.zeros(len(trace) + 1, np.int64), np.zeros(1, np.int64)
    ledgers, room = _ledgers(trace, machine), machine.host_bytes if host else 0
    attended(
        lambda: greedy.choose(table, ledgers, level, trace.ns, over, target, room, len(idle), stop),
        look,
        lambda: stop.fill(1),
    )
    fetches = _earlier(table, level, target)
    moves = [_move(idle[i], int(table.chosen[i]), fetches[i]) for i in range(len(idle)) if i in fetches]
    forced = _forced(idle, table, level, peak, int(target * FORCED)) if granular else []
    deaths = trace.deaths
    freed = tuple((deaths[tensor], tensor) for tensor in known if deaths[tensor] < len(trace))
    kept = frozenset(known)
    return Scheme(tuple(moves), tuple(forced), tuple(e if t in kept else -1 for t, e in enumerate(early)), freed)


def _table(idle: Sequence[Period], machine: G10Machine) -> greedy.Periods:
    def ints(values: Sequence[int]) -> Ints:
        return np.array(values, np.int64)

    def safe(latency_ns: int, rate: int) -> Ints:
        return ints([int(SAFE * (latency_ns + x.nbytes * 10**9 / (rate * _BINARY))) for x in idle])

    zeros = [0] * len(idle)
    return greedy.Periods(
        nbytes=ints([x.nbytes for x in idle]),
        ns=ints([x.ns for x in idle]),
        begin=ints([x.begin for x in idle]),
        end=ints([x.end for x in idle]),
        wraps=np.array([x.wraps for x in idle], np.bool_),
        drive_above_ns=safe(machine.drive_latency_ns, machine.drive),
        host_above_ns=safe(machine.host_latency_ns, machine.wire),
        chosen=ints(zeros),
        out=ints(zeros),
        back=ints(zeros),
        fetch=ints(zeros),
    )


def _ledgers(trace: Trace, machine: G10Machine) -> greedy.Ledgers:
    ns = trace.ns.astype(np.float64)
    wire, drive = (ns * (rate * _BINARY / 10**9) for rate in (machine.wire, machine.drive))
    return greedy.Ledgers(wire, wire.copy(), drive, drive.copy())


def _earlier(table: greedy.Periods, level: Ints, target: int) -> dict[int, int]:
    """For each chosen period the kernel in which its fetch starts: the first from which on the estimate is within the
    target. The original does not count the tensor itself."""
    found: dict[int, int] = {}
    chosen = [i for i in range(len(table.begin)) if table.chosen[i] >= greedy.TO_HOST]
    for i in sorted(chosen, key=lambda i: int(table.fetch[i])):
        first = 0 if table.wraps[i] else int(table.out[i]) + 1
        start = int(table.fetch[i])
        while start > first and level[start - 1] <= target:
            start -= 1
        level[start : max(start, int(table.back[i]))] += int(table.nbytes[i])
        found[i] = start
    return found


def _forced(idle: Sequence[Period], table: greedy.Periods, level: Ints, peak: int, target: int) -> list[Move]:
    """Move what lies idle across the peak, the largest product of time and bytes first, until all kernels fit."""
    found: list[Move] = []
    for i, period in enumerate(idle):
        if level[peak] <= target:
            break
        if table.chosen[i] < greedy.TO_HOST and period.begin < peak < period.end and not period.wraps:
            level[period.begin : period.end] -= period.nbytes
            found.append(_move(period, greedy.TO_DRIVE, period.end))
    return found


def _move(period: Period, place: int, back: int) -> Move:
    tier: Tier = "host" if place == greedy.TO_HOST else "ssd"
    return Move(period.tensor, tier, period.begin, back, period.end, period.wraps)
