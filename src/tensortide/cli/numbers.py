"""Fractional numbers on the command line."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

from cyclopts import validators


@dataclass(frozen=True)
class Real:
    """The check of an option that is a fractional number: finite unless ``infinite``, and within the bounds given.

    Every such option has it, as Python reads ``nan`` and ``inf`` as numbers, and no bound excludes ``nan``.

    Examples:
        >>> Real(above=0)(float, math.nan)
        Traceback (most recent call last):
        ValueError: Must be a finite number.
    """

    _: KW_ONLY
    above: float | None = None
    least: float | None = None
    most: float | None = None
    infinite: bool = False

    def __call__(self, kind: object, value: float | None) -> None:
        """Raise ValueError for a number that cannot be."""
        if value is not None and not (math.isfinite(value) or (self.infinite and value == math.inf)):
            raise ValueError("Must be a number." if self.infinite else "Must be a finite number.")
        validators.Number(gt=self.above, gte=self.least, lte=self.most)(kind, value)
