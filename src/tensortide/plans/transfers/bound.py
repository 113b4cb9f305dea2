"""A lower bound on the time of plans with transfers in recorded order, which anyone can compute again without a solver.

*Waits at an op.* When an op runs for the first time, enough bytes are away of the gaps that cover it, at its start and
at its end; not always the same ones. What is away at one of these moments was copied out before, since the op that
wrote it, and comes back before its next use: fetched, or written again by the op that wrote it last. Both stretches
last as long as the recorded step has it, and longer by what a plan adds: L before the moment, R behind it, and no plan
takes less time than base + L + R. So many bytes fit through the engines and into recomputation within L and R; the
least L + R that lets enough leave is the bound.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec
import numpy as np

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.under_budget.idle import IdleIntervals, idle_intervals
from tensortide.plans.under_budget.tables import tables
from tensortide.search_limit import Look, no_look

MOST_OPS = 16
"""Ops at which waits are computed: those that exceed the budget by most."""
STEPS = 64
"""Values of R that are told apart."""


class Waits(msgspec.Struct, frozen=True, tag="waits at an op"):
    """Proof: what exceeds ``budget_bytes`` at ``op`` makes a plan wait, up to ``most_ns``."""

    budget_bytes: int
    op: int
    most_ns: int


class _Gap(NamedTuple):
    """A gap at an op. ``again_ns``: the time of the op that writes it again, if any, of which ``share_ns`` is its part,
    rounded down; ``rank``: that per byte.

    ``since_ns``, ``due_ns``: from its writer to the moment, and from then to its next use, in the recorded step.
    ``moves``: for each link the time of the copy and of the fetch, 0 where none is needed.
    """

    nbytes: int
    again_ns: int | None
    share_ns: int
    rank: Fraction
    since_ns: int
    due_ns: int
    moves: tuple[tuple[int, int], ...]


def waits(instance: Instance, budget_bytes: int, most_ns: int, look: Look = no_look) -> tuple[int, Waits | None]:
    """The best bound, at most ``most_ns`` over the time of every op once, and its proof; None if it is no better.

    ``look`` is called now and then; it may raise.
    """
    found = idle_intervals(instance, tables(instance))
    over = found.need - budget_bytes
    best: tuple[int, Waits | None] = (instance.base_ns, None)
    for op in np.argsort(-over, kind="stable")[:MOST_OPS].tolist():
        if over[op] > 0:
            bound = instance.base_ns + _wait_ns(instance, found, op, int(over[op]), most_ns, look)
            if bound > best[0]:
                best = bound, Waits(budget_bytes, op, most_ns)
    return best


def verify_waits(instance: Instance, proof: Waits) -> int:
    """The time that no plan undercuts whose first runs are in recorded order, whatever it recomputes or moves."""
    found = idle_intervals(instance, tables(instance))
    over = int(found.need[proof.op]) - proof.budget_bytes
    return instance.base_ns + (_wait_ns(instance, found, proof.op, over, proof.most_ns) if over > 0 else 0)


def _wait_ns(
    instance: Instance,
    found: IdleIntervals,
    op: int,
    over: int,
    most_ns: int,
    look: Look = no_look,
) -> int:
    """The least L + R at the start or the end of the op, or ``most_ns``."""
    both = (_covering(instance, found, op, moment) for moment in (op, op + 1))
    return max(_moment_ns(instance, covering, over, most_ns, look) for covering in both)


def _moment_ns(instance: Instance, covering: Sequence[_Gap], over: int, most_ns: int, look: Look) -> int:
    """The least L + R, or ``most_ns``. Within a step of the grid the last R is assumed for L, and the first added."""
    out = sum((link.bytes_per_s for link in instance.links), Fraction())
    back = sum((link.in_bytes_per_s or link.bytes_per_s for link in instance.links), Fraction())
    step = -(-most_ns // STEPS) or 1
    best = most_ns
    for first in range(0, most_ns, step):
        if first >= best:
            break
        look()
        best = min(best, first + _left_ns(covering, (out, back), first + step - 1, over, best - first))
    return best


def _left_ns(covering: Sequence[_Gap], rates: tuple[Fraction, Fraction], right: int, over: int, most: int) -> int:
    """The least L with which enough leaves, given R and the rates of all links together, outwards and back; ``most`` if
    that is not enough."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if _away_bytes(covering, rates, middle, right) >= over:
            high = middle
        else:
            low = middle + 1
    return low


def _covering(instance: Instance, found: IdleIntervals, op: int, moment: int) -> list[_Gap]:
    """The gaps that cover an op; ``moment``: the op at whose start they are looked at, this one or the next."""
    starts = list(accumulate((x.ns for x in instance.ops), initial=0))
    covering = []
    for g in np.flatnonzero((found.begin <= op) & (op < found.end)).tolist():
        s, state, end = int(found.storage[g]), int(found.state[g]), int(found.end[g])
        storage = instance.storages[s]
        if storage.pinned or not storage.nbytes:
            continue
        may_live = storage.persistent or s in instance.home
        moves = tuple(
            (
                0 if may_live and state == BEFORE else link.transfer_ns(storage.nbytes),
                0 if may_live and end >= len(instance.ops) else link.transfer_ns(storage.nbytes, inwards=True),
            )
            for link in instance.links
        )
        again = None if state == BEFORE or instance.ops[state].once else instance.ops[state]
        share = 0 if again is None else again.ns // len({*again.makes, *again.writes})
        since, due = starts[moment] - starts[state + 1], starts[end] - starts[moment]
        again_ns, rank = None if again is None else again.ns, Fraction(share, storage.nbytes)
        covering.append(_Gap(storage.nbytes, again_ns, share, rank, since, due, moves))
    return covering


def _away_bytes(covering: Sequence[_Gap], rates: tuple[Fraction, Fraction], left: int, right: int) -> int:
    """At most so many bytes are away at the op, if a plan adds ``left`` before it and ``right`` behind it."""
    possible = [
        gap
        for gap in covering
        if (gap.again_ns is not None and gap.again_ns <= right)
        or any(out <= gap.since_ns + left and back <= gap.due_ns + right for out, back in gap.moves)
    ]
    total = sum(gap.nbytes for gap in possible)
    best = total
    out, back = rates
    if out:
        needs_out = [gap for gap in possible if all(move[0] for move in gap.moves)]
        needs_back = [gap for gap in possible if all(move[1] for move in gap.moves)]
        best = min(best, _through(needs_out, [gap.since_ns for gap in needs_out], out, left, right, total))
        best = min(best, _through(needs_back, [gap.due_ns for gap in needs_back], back, right, right, total))
    return best


def _through(gaps_: Sequence[_Gap], spans: Sequence[int], rate: Fraction, more: int, right: int, total: int) -> int:
    """At most so many bytes of ``total``: those whose stretch is short share the engines within it."""
    best = total
    again: list[_Gap] = []  # by time to write them again per byte
    nbytes = 0
    for gap, span in sorted(zip(gaps_, spans, strict=True), key=itemgetter(1)):
        if gap.again_ns is not None and gap.again_ns <= right:
            insort(again, gap, key=attrgetter("rank"))
        nbytes += gap.nbytes
        moved = rate.numerator * (span + more) // (rate.denominator * 10**9)
        if moved < nbytes:
            best = min(best, total - nbytes + min(nbytes, moved + _written_again(again, right)))
    return best


def _written_again(found: Iterable[_Gap], right: int) -> int:
    """At most so many bytes of ``found``, by rank, are written again within ``right``."""
    left, total = right, 0
    for gap in found:
        if gap.share_ns <= left:
            total += gap.nbytes
            left -= gap.share_ns
        else:
            return total - -left * gap.nbytes // gap.share_ns
    return total
