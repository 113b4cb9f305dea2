"""Symbols in the sizes of a file: examples where no value is given, and the error for a name that is none; trips of a
loop that counts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tensortide.errors import WorkloadError

BATCH = 1
"""Example of an open first size."""
LENGTH = 32
"""Example of any other open size."""
FAR = (1 << 31) - 1
"""From here on a maximum of trips says nothing of how many there are, where data may end a loop."""


def steps_until(limit: int, start: int, step: int, *, rises: bool, reaches: bool) -> int | None:
    """Count the steps of a counter while it is below ``limit`` (above, unless it ``rises``), or at it where it
    ``reaches`` that; None if it moves the other way."""
    if step == 0 or rises != (step > 0):
        return None
    distance = (limit - start if rises else start - limit) + int(reaches)
    return max(0, -(-distance // abs(step)))


def require_symbols(source: object, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise WorkloadError for a ``given`` name that is not among the ``known`` symbols of ``source``."""
    names = [*known]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            listed = ", ".join(names) or "none: all sizes are stored"
            raise WorkloadError(f"{source} has no symbol {name!r}{hint}\nIts symbols are: {listed}.")
