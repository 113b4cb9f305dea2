"""Symbols in the sizes of a file: examples where no value is given, and the error for a name that is none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tensortide.errors import WorkloadError

BATCH = 1
"""Example of an open first size."""
LENGTH = 32
"""Example of any other open size."""


def require_symbols(source: object, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise WorkloadError for a ``given`` name that is not among the ``known`` symbols of ``source``."""
    names = [*known]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            listed = ", ".join(names) or "none: all sizes are stored"
            raise WorkloadError(f"{source} has no symbol {name!r}{hint}\nIts symbols are: {listed}.")
