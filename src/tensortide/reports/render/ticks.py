"""Ticks of the axes of figures: their places and their text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensortide.reports.blocks import UnitName
from tensortide.reports.render.values import value_text

if TYPE_CHECKING:
    from matplotlib.ticker import FixedLocator, MaxNLocator


def round_bytes(rounds: MaxNLocator, low: float, high: float) -> FixedLocator:
    """Ticks that are round in the binary unit of ``high``."""
    from matplotlib.ticker import FixedLocator

    scale = 1024 ** int(math.log(high, 1024))
    return FixedLocator([value * scale for value in rounds.tick_values(low / scale, high / scale)])


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
