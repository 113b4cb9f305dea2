"""Ticks of the axes of figures: their places and their text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tensortide.reports.blocks import UnitName
from tensortide.reports.render.values import value_text

if TYPE_CHECKING:
    from matplotlib.ticker import Locator

_TIMES = ((1.0, 0.0), (60.0, 600.0), (3600.0, 7200.0), (86400.0, 172800.0))
"""Seconds of each unit that times are printed in, and the time from which they are."""
_POWERS = (1, 2, 3, 5, 10, 20)
_STEPS = (((1, 1.5, 2, 3, 5, 7), 1), ((1, 2, 5), 1), ((1, 3), 1), *(((1,), step) for step in _POWERS))
"""Multiples of every so many powers of ten, from fine to coarse."""
_LETTER = 0.08
"""Inches of a letter of a label."""
_CLOSE = 0.8
"""Least distance of ticks, as a share of that of the most ticks an axis has room for."""


def round_ticks(low: float, high: float, most: int, unit: UnitName) -> Locator:
    """Up to ``most`` ticks of an even axis that are round in the unit in which ``high`` is printed."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, MultipleLocator

    rounds = MaxNLocator(most, integer=unit in ("op", "count"), steps=[1, 2, 5, 10])

    scale = _printed(high, unit)
    if scale == 1:
        return rounds
    if unit == "bytes" and high < 4 * scale:  # tenths of the unit would be odd numbers in the next smaller one
        return MultipleLocator(2.0 ** math.ceil(math.log2((high - low) / most)))
    return FixedLocator([value * scale for value in rounds.tick_values(low / scale, high / scale)])


def log_ticks(low: float, high: float, most: int, unit: UnitName) -> list[float]:
    """Round values between ``low`` and ``high``, up to ``most``, as even as they come on a logarithmic axis; none where
    the axis spans too little for them."""
    every = list(_choices(low, high, unit))
    if len(every[0]) < 3:
        return []
    gap = _CLOSE * (math.log(high) - math.log(low)) / most
    for one in every:
        if len(one) <= most and all(math.log(b) - math.log(a) >= gap for a, b in pairwise(one)):
            return one
    return every[-1]


def spaced(ticks: Iterable[float], at: Callable[[float], float], unit: UnitName) -> list[float]:
    """``ticks`` without those whose label reaches the one before; ``at`` has the place of each, in inches."""
    kept: list[float] = []
    for tick in sorted(ticks):
        letters = len(tick_text(tick, unit)) + (len(tick_text(kept[-1], unit)) if kept else 0)
        if not kept or at(tick) - at(kept[-1]) >= _LETTER * (letters / 2 + 1.5):
            kept.append(tick)
    return kept


def tick_text(value: float, unit: UnitName) -> str:
    """Print the value at a tick without the zeros that all ticks share."""
    whole = int(value) if value == int(value) else value
    if unit in ("op", "count", "number"):
        return f"{whole:,}" if isinstance(whole, int) else f"{value:g}"
    if not value:
        return "0"
    number, _, rest = value_text(whole, unit).partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {rest}".strip()


def _printed(value: float, unit: UnitName) -> float:
    """The size of the unit that ``value`` is printed in, where it is no power of ten."""
    if unit == "bytes" and value > 1024:
        return float(1024 ** int(math.log(value, 1024)))
    if unit in ("s", "ns"):
        second = 1.0 if unit == "s" else 1e9
        size = max(size for size, least in _TIMES if value / second >= least)
        return 1.0 if size == 1 else size * second
    return 1.0


def _choices(low: float, high: float, unit: UnitName) -> Iterator[list[float]]:
    """Round values from ``low`` to ``high``, of more and more distance."""
    if unit == "bytes":
        powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        yield from ([2.0**power for power in powers if power % step == 0] for step in _POWERS)
        return
    for multiples, step in _STEPS:
        if unit in ("s", "ns"):
            yield list(_of_times(low, high, multiples, step, 1.0 if unit == "s" else 1e9))
        else:
            found = _decimal(low, high, multiples, step)
            yield [value for value in found if unit not in ("op", "count") or value == int(value)]


def _decimal(low: float, high: float, multiples: Sequence[float], step: int) -> Iterator[float]:
    """``multiples`` of every ``step``-th power of ten."""
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        if power % step == 0:
            yield from (one for one in (multiple * 10.0**power for multiple in multiples) if low <= one <= high)


def _of_times(low: float, high: float, multiples: Sequence[float], step: int, second: float) -> Iterator[float]:
    """Times that are round in the unit in which each is printed."""
    until = [*(least for _, least in _TIMES[1:]), math.inf]
    for (size, least), end in zip(_TIMES, until, strict=True):
        unit = size * second
        first, last = max(low, least * second), min(high, end * second)
        if first < last:
            values = (value * unit for value in _decimal(first / unit, last / unit, multiples, step))
            yield from (value for value in values if value < end * second)
