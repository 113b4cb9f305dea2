"""G10's choice of periods to move, compiled: the largest benefit first, with a ledger of bytes by kernel and direction.

The ledgers do not wrap around the step, and periods that do ignore them, as in the original.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensortide.compiled import compiled, entry
from tensortide.replays.g10.machine import Ints

Floats: TypeAlias = NDArray[np.float64]
UNDECIDED, REJECTED, TO_HOST, TO_DRIVE = range(4)


class Periods(NamedTuple):
    """Idle periods, the largest product of time and bytes first: the tensor is not used from kernel ``begin`` until
    ``end``; ``wraps``: over the end of the step. ``chosen`` is one of the choices above. ``out`` is the kernel in which
    half of the tensor has left, ``back`` that from which on half has to be there again, ``fetch`` that in which it
    begins to come back."""

    nbytes: Ints
    ns: Ints
    begin: Ints
    end: Ints
    wraps: NDArray[np.bool_]
    drive_above_ns: Ints
    host_above_ns: Ints
    chosen: Ints
    out: Ints
    back: Ints
    fetch: Ints


class Ledgers(NamedTuple):
    """Bytes that can still move during each kernel: over the wire and from or to the drive, each way."""

    wire_out: Floats
    wire_in: Floats
    drive_out: Floats
    drive_in: Floats


@entry
def choose(
    p: Periods, ledgers: Ledgers, level: Ints, ns: Ints, over: Ints, target: int, host: int, rounds: int, stop: Ints
) -> int:
    """Choose periods until ``level``, bytes by kernel, is nowhere above ``target``; return the rounds taken.

    ``over`` is room for a running sum. ``host``: bytes that the host can take. ``stop``: not 0 once it is to end.
    """
    for number in range(rounds):
        fits = True
        over[0] = 0
        for kernel in range(len(ns)):
            above = level[kernel] > target
            fits = fits and not above
            over[kernel + 1] = over[kernel] + (ns[kernel] if above else 0)
        if fits:
            return number
        best, most = -1, 0.0
        for i in range(len(p.begin)):
            if stop[0]:
                return number
            if p.chosen[i] == UNDECIDED:
                place = _place(p, ledgers, i, host)
                if place:
                    _, out = _leaves(p, ledgers, i, place, False)
                    _, back = _returns(p, ledgers, i, place, False)
                    benefit = float(p.nbytes[i]) * max(0, _between(over, out, back, p.wraps[i]))
                    if benefit > most:
                        best, most = i, benefit
        if best < 0:
            return number
        place = _place(p, ledgers, best, host)
        gone, out = _leaves(p, ledgers, best, place, False)
        fetch, back = _returns(p, ledgers, best, place, False)
        if not p.wraps[best] and fetch <= gone:
            p.chosen[best] = REJECTED
            continue
        _leaves(p, ledgers, best, place, True)
        _returns(p, ledgers, best, place, True)
        p.chosen[best], p.out[best], p.back[best], p.fetch[best] = place, out, back, fetch
        host -= p.nbytes[best] if place == TO_HOST else 0
        _lower(level, out, back, p.wraps[best], p.nbytes[best])
    return rounds


@compiled
def _place(p: Periods, ledgers: Ledgers, i: int, host: int) -> int:
    """The drive, unless its ledger is full where the period begins; the host for what is too short for the drive."""
    has_room = host >= p.nbytes[i]
    if p.ns[i] > p.drive_above_ns[i]:
        begin = min(p.begin[i], len(ledgers.drive_out) - 1)
        full = ledgers.drive_out[begin] <= 0
        return TO_HOST if full and has_room else TO_DRIVE
    return TO_HOST if p.ns[i] > p.host_above_ns[i] and has_room else UNDECIDED


@compiled
def _leaves(p: Periods, ledgers: Ledgers, i: int, place: int, commit: bool) -> tuple[int, int]:
    """The kernels in which the tensor, and half of it, has left."""
    if p.wraps[i]:
        return p.begin[i], p.begin[i]
    left, half = float(p.nbytes[i]), -1
    kernel = p.begin[i]
    while kernel < p.end[i]:
        room = ledgers.wire_out[kernel]
        if place == TO_DRIVE:
            room = min(room, ledgers.drive_out[kernel])
        n = min(room, left)
        left -= n
        if commit:
            ledgers.wire_out[kernel] -= n
            ledgers.drive_out[kernel] -= n if place == TO_DRIVE else 0
        if half < 0 and left <= p.nbytes[i] / 2:
            half = kernel
        if left <= 0:
            return kernel, half
        kernel += 1
    return p.end[i], p.end[i] if half < 0 else half


@compiled
def _returns(p: Periods, ledgers: Ledgers, i: int, place: int, commit: bool) -> tuple[int, int]:
    """The kernels in which the tensor begins to come back, and from which on half of it is there."""
    if p.wraps[i]:
        return p.end[i] - 1, p.end[i]
    left, half = float(p.nbytes[i]), -1
    kernel = p.end[i] - 1
    while kernel >= p.begin[i]:
        room = ledgers.wire_in[kernel]
        if place == TO_DRIVE:
            room = min(room, ledgers.drive_in[kernel])
        n = min(room, left)
        left -= n
        if commit:
            ledgers.wire_in[kernel] -= n
            ledgers.drive_in[kernel] -= n if place == TO_DRIVE else 0
        if half < 0 and left <= p.nbytes[i] / 2:
            half = kernel
        if left <= 0:
            return kernel, half
        kernel -= 1
    return p.begin[i] - 1, p.begin[i] if half < 0 else half


@compiled
def _between(over: Ints, out: int, back: int, wraps: bool) -> int:
    """The time of kernels above the target from ``out`` until ``back``."""
    if wraps:
        return int(over[len(over) - 1] - over[out] + over[back])
    return int(over[back] - over[out])


@compiled
def _lower(level: Ints, out: int, back: int, wraps: bool, nbytes: int) -> None:
    for kernel in range(len(level)):
        away = kernel >= out or kernel < back if wraps else out <= kernel < back
        if away:
            level[kernel] -= nbytes
