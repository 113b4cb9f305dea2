"""Options of algorithms as text: ``population=50``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, get_type_hints

import msgspec

from tensortide.errors import PlacementError
from tensortide.placements.search.algorithm import Search


def configured(kind: type[Search], options: Mapping[str, Any]) -> Search:
    """Make the algorithm ``kind`` with ``options``, whose values may be text.

    Raises PlacementError for an option that it does not have, and for a value that is none of it.
    """
    hints, known = get_type_hints(kind), [field.name for field in dataclasses.fields(kind)]
    given = {}
    for name, value in options.items():
        if name not in known:
            near = ", ".join(get_close_matches(name, known, n=3) or known) or "none"
            raise PlacementError(f"the search {kind.name} has no option {name!r}; it has: {near}.")
        wrong = f"the option {name} of the search {kind.name} cannot be {value!r}"
        try:
            given[name] = msgspec.convert(_number(value) if hints[name] is float else value, hints[name], strict=False)
        except msgspec.ValidationError as error:
            raise PlacementError(f"{wrong}: {error}") from None
        if isinstance(given[name], float) and not math.isfinite(given[name]):
            raise PlacementError(f"{wrong}: it is a finite number.")
    return kind(**given)


def _number(value: object) -> object:
    """Return the number that the text ``value`` is, or ``value``: msgspec reads numbers as JSON has them, so not .3."""
    with suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def parsed(texts: Sequence[str]) -> dict[str, str]:
    """Read options written as ``name=value``. Raises PlacementError for other text."""
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals:
            raise PlacementError(f"an option of a search is written name=value, not {name!r}.")
    return {name.strip().replace("-", "_"): value.strip() for name, _, value in pairs}
