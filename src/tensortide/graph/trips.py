"""Trip counts of loops that depend on data: which are guessed, how that is said, and giving them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from tensortide.errors import WorkloadError
from tensortide.expr import expr_of, sized, symbol
from tensortide.graph.model import OUTSIDE, Graph
from tensortide.graph.sizes import resized

V = TypeVar("V")
TRIPS = "trips."
"""Before the name of a loop among settings: ``--set trips.while_3=20``."""


def guessed_trips(graph: Graph) -> dict[str, int]:
    """Trip counts that nobody knows, by the name of the loop: those of ``graph`` and of what it was written out from.

    A loop that retraces another one has its trips, and is left out.
    """
    own = {loop.name: int(loop.trips) for loop in graph.loops if loop.assumed and loop.gradient_of == OUTSIDE}
    return {**graph.meta.guessed_trips, **own}


def guess_text(guessed: Mapping[str, int]) -> str:
    """Say that the bodies of these loops count so often only because nobody knows better, and how to tell."""
    parts = []
    for name, trips in guessed.items():
        often = "once" if trips == 1 else "not at all" if not trips else f"{trips} times"
        parts.append(f"counted {often}: loop `{name}` runs an unknown number of times (--set {TRIPS}{name}=N)")
    return ", ".join(parts)


def with_trips(graph: Graph, trips: Mapping[str, int]) -> Graph:
    """Give loops their trip counts, by name; every loop of that name, and the loops that retrace them, run so often.
    Where the count is a symbol, sizes that depend on it change with it.

    Raises WorkloadError for a name that no loop has, and for a loop whose trip count the file says.
    """
    if not trips:
        return graph
    loops, values = list(graph.loops), dict[str, int]()
    for name, count in trips.items():
        found = [i for i, loop in enumerate(loops) if loop.name == name]
        if not found:
            known = ", ".join(dict.fromkeys(loop.name for loop in loops)) or "none"
            near = difflib.get_close_matches(name, [loop.name for loop in loops], 1)
            raise WorkloadError(f"no loop {name!r}{f'; {near[0]!r} is meant?' if near else ''}. Its loops: {known}")
        for i in found:
            if not graph.loops[i].assumed:
                raise WorkloadError(f"loop {name!r} runs {int(loops[i].trips)} times: that is known, and is not set")
        for i, loop in enumerate(loops):
            if i in found or (loop.gradient_of in found and loop.assumed):
                named = min(expr_of(loop.trips).symbols, default=None)
                is_symbol = named is not None and expr_of(loop.trips) == symbol(named)
                values.update({named: count} if named is not None and is_symbol else {})
                given = sized(expr_of(loop.trips), count) if is_symbol else count
                loops[i] = msgspec.structs.replace(loop, trips=given, assumed=False)
    return msgspec.structs.replace(resized(graph, values) if values else graph, loops=tuple(loops))


def split_settings(settings: Mapping[str, V]) -> tuple[dict[str, V], dict[str, int]]:
    """Split settings of a file into values of its symbols and trip counts by the name of the loop.

    Raises WorkloadError for a trip count that is no whole number, or negative.
    """
    symbols, trips = dict[str, V](), dict[str, int]()
    for name, value in settings.items():
        if not name.startswith(TRIPS):
            symbols[name] = value
        elif not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise WorkloadError(f"{name} is a number of trips: not {value!r}")
        else:
            trips[name.removeprefix(TRIPS)] = value
    return symbols, trips
