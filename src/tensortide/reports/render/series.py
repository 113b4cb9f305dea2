"""Looks of series: colour, dashes and marker by number, the same in figures and on the page.

The first seven colours are those of Okabe and Ito, which everyone tells apart; two of them are darker, for thin lines.
"""

from __future__ import annotations

from typing import NamedTuple

MANY = 24
"""Places of a joined series from which on it has no markers."""
ENDS = {"oom": "x", "thrash": "+"}
"""Marker of the place at which a series ends, by the reason."""
REASONS = {"oom": "out of memory", "thrash": "thrash"}
_COLORS = (
    ("#0072b2", "#5aa9dc"),
    ("#d55e00", "#e8803c"),
    ("#009e73", "#3fc39a"),
    ("#cc79a7", "#dd9fc2"),
    ("#b87a00", "#e6b450"),
    ("#3fa0d8", "#8fcdf0"),
    ("#000000", "#f0f2f4"),
    ("#7b4fa3", "#b18ad6"),
    ("#8c564b", "#c49a8f"),
    ("#b2182b", "#ef6a78"),
    ("#5a8a00", "#a3cc4f"),
    ("#00838f", "#4fd0d9"),
    ("#e0559a", "#ff9ccb"),
    ("#1f3b73", "#8aa4e8"),
    ("#7f7f7f", "#b0b0b0"),
    ("#a6a100", "#d9d45a"),
)
_DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.6), (1.2, 1.4), (6, 1.5, 1.2, 1.5), (3, 1, 1, 1, 1, 1))
_MARKERS = "osD^v<>"


class Look(NamedTuple):
    """Colour of a series on paper and on a dark page, its dashes (in widths of the line; none: solid), its marker."""

    light: str
    dark: str
    dashes: tuple[float, ...]
    marker: str


LOOKS = tuple(Look(*pair, _DASHES[n % 5], _MARKERS[n % 7]) for n, pair in enumerate(_COLORS))


def width(number: int) -> float:
    """Width of the line of a series: later ones are thinner, so that those below are seen where they coincide."""
    return max(1.1, 2.6 - 0.25 * number)
