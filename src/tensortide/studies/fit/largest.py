"""The largest batch that fits, by captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from tensortide.errors import TensortideError
from tensortide.shown import Show

MOST = 1 << 24
"""Samples beyond which nobody looks."""

DIGITS = 3
"""Digits of a batch that are searched for: one in a thousand is less than predictions of memory are sure of."""

_BISECTS = 5
"""One capture in so many is halfway."""


class Largest(msgspec.Struct, frozen=True):
    """The largest ``batch`` of which the step fits (0: not even one sample), by the hyperparameter ``name``.

    ``reserved_bytes`` is what the allocator reserves for it, ``next_bytes`` that of ``next_batch``, the least of which
    the step is known not to fit: one sample more, or further where the batch has more than ``DIGITS``.
    ``captures`` is how many steps were captured. ``least``: the search ended there, with more that fits.
    """

    name: str
    batch: Annotated[int, Show("Largest batch")]
    reserved_bytes: int
    next_batch: int | None
    next_bytes: int | None
    captures: int
    least: bool = False


def largest_batch(name: str, start: int, reserved: Callable[[int], int], limit_bytes: int) -> Largest | None:
    """Search for the largest batch whose ``reserved`` bytes are at most ``limit_bytes``, from ``start``.

    They are nearly a straight line in the batch: each step of the search asks at the place where the line through
    the two nearest known points meets the limit. It ends with two neighbours, one that fits and one that does not;
    neighbours differ by one, or in the third digit. None if a batch other than ``start`` cannot be captured.
    """
    known: dict[int, int] = {}

    def ask(batch: int) -> bool:
        known[batch] = reserved(batch)
        return known[batch] <= limit_bytes

    def upwards(batch: int) -> int:
        """``batch`` with three digits, and above ``low``."""
        unit = _unit(max(low, batch))
        return max(batch // unit, low // unit + 1) * unit

    low, high = 0, 0
    if ask(start):
        low = start
    else:
        high = start
    try:
        while not high:
            if low >= MOST:
                return Largest(name, low, known[low], None, None, len(known), True)
            batch = upwards(_met(known, low, limit_bytes, low + 1, 8 * low))
            if ask(batch):
                low = batch
            else:
                high = batch
        while high - low > _unit(low):
            bisects = len(known) % _BISECTS == 0  # where the peak is no straight line, its end may stay put
            batch = upwards((low + high) // 2 if bisects else _met(known, low, limit_bytes, low + 1, high - 1, high))
            if ask(batch):
                low = batch
            else:
                high = batch
    except TensortideError:
        if len(known) < 2:
            return None
        return Largest(name, low, known.get(low, 0), high or None, known.get(high), len(known), True)
    return Largest(name, low, known.get(low, 0), high, known[high], len(known))


def _unit(batch: int) -> int:
    """One in the last of the digits of ``batch`` that count."""
    return int(10 ** max(0, len(str(batch)) - DIGITS))


def _met(known: dict[int, int], low: int, limit: int, least: int, most: int, high: int = 0) -> int:
    """The batch from ``least`` to ``most`` at which the line through the points known next to it meets ``limit``."""
    points = [point for point in (low, high) if point in known]
    if len(points) < 2:
        points = sorted(known)[-2:] if not high else sorted(known)[:2]
    if len(points) < 2 or known[points[0]] == known[points[1]]:
        return max(least, min(most, 2 * low if not high else (low + high) // 2))
    one, two = points
    slope = (known[two] - known[one]) / (two - one)
    found = int(one + (limit - known[one]) / slope) if slope > 0 else most
    return max(least, min(most, found))
