"""Assumptions about values that a step reads: ``--assume train.py:41=128``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensortide.errors import Doubtful, RequestError

if TYPE_CHECKING:
    from tensortide.graph import Graph


def assumed(texts: Sequence[str], *, expressions: bool = False) -> dict[str, Any]:
    """Return the values of ``--assume`` by place; ``expressions`` in hyperparameters are texts.

    Raises RequestError for a malformed one.
    """
    values: dict[str, Any] = {}
    for text in texts:
        place, equals, value = text.rpartition("=")
        file, colon, line = place.strip().rpartition(":")
        known = {"true": True, "false": False}.get(value.strip().lower())
        try:
            number = known if known is not None else ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            number = value.strip() if expressions and value.strip() else None
        kinds = (bool, int, float, str) if expressions else (bool, int, float)
        if not (equals and file and colon and line.isdecimal() and isinstance(number, kinds)):
            raise RequestError(f"--assume takes FILE:LINE=NUMBER, as train.py:41=128, not {text!r}")
        values[place.strip()] = number
    return values


def require_certain(graph: Graph) -> None:
    """Raise Doubtful if ops or sizes of ``graph`` depend on what was assumed, or may."""
    if found := (*graph.meta.decisive, *graph.meta.untested):
        listed = "\n  ".join(found)
        raise Doubtful(
            f"--strict: ops or sizes of the step depend on what was assumed:\n  {listed}\n"
            "Give the values (--assume FILE:LINE=VALUE), or capture on real tensors (--real; a script: no --fake)."
        )
