"""The symbols in the sizes of a Graph: their values, and the Graph at other values."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, Mapping

import msgspec

from tensortide.errors import ExpressionError, GraphError
from tensortide.expr import Size, expr_of, sized
from tensortide.graph.model import Call, Graph, Value
from tensortide.graph.validate import validate


def known_sizes(graph: Graph) -> dict[str, int]:
    """Values of symbols: what the sizes of ``graph`` that are one symbol, or a multiple of one, say."""
    sizes = itertools.chain((n for t in graph.tensors for n in t.shape), (loop.trips for loop in graph.loops))
    found: dict[str, int] = {}
    for size in sizes:
        expr = expr_of(size)
        if len(expr.terms) == 1 and len(expr.symbols) == 1 and (name := min(expr.symbols)) not in found:
            ((monomial, times),) = expr.terms.items()
            if monomial == ((name, 1),) and isinstance(times, int):
                found[name] = int(size) // times
    return found


def resized(graph: Graph, values: Mapping[str, int]) -> Graph:
    """Return ``graph`` at other ``values`` of the symbols in its sizes: shapes, strides, bytes, trips, arguments.

    Raises GraphError for a symbol that it does not have, and for sizes that are negative, broken or unknown there.
    """
    known = known_sizes(graph)
    if unknown := [name for name in values if name not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"; {near[0]!r} is meant?" if near else ""
        raise GraphError(
            f"no size of the graph has a symbol {unknown[0]!r}{hint}. It has: {', '.join(known) or 'none'}"
        )
    at = {**known, **values}

    def moved(size: int) -> int:
        if not isinstance(size, Size):
            return size
        try:
            value = size.expr.evaluate(at)
        except (ExpressionError, KeyError) as error:
            raise GraphError(f"the size {size.expr} is not known at {at}: {error}") from error
        if value < 0:
            raise GraphError(f"the size {size.expr} is {value} at {at}")
        return sized(size.expr, int(value))

    made = _mapped(graph, moved)
    validate(made)
    return made


def settled(graph: Graph, values: Mapping[str, int], kept: Collection[str]) -> Graph:
    """Return ``graph`` with the ``values`` of all symbols in its sizes but those ``kept``."""
    fixed = {name: value for name, value in values.items() if name not in kept}
    return _mapped(graph, lambda size: sized(expr_of(size).subs(fixed), int(size)))


def _mapped(graph: Graph, moved: Callable[[int], int]) -> Graph:
    """Return ``graph`` with every size ``moved``."""

    def tuples(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([moved(size) for size in sizes])

    replace = msgspec.structs.replace
    return replace(
        graph,
        tensors=tuple(
            replace(t, shape=tuples(t.shape), strides=tuples(t.strides), offset=moved(t.offset)) for t in graph.tensors
        ),
        storages=tuple(replace(storage, nbytes=moved(storage.nbytes)) for storage in graph.storages),
        loops=tuple(replace(loop, trips=moved(loop.trips)) for loop in graph.loops),
        calls=tuple(_moved_call(call, moved) for call in graph.calls),
        composites=None,
    )


def _moved_call(call: Call, moved: Callable[[int], int]) -> Call:
    def value(given: Value) -> Value:
        if isinstance(given, Size):
            return moved(given)
        return tuple(map(value, given)) if isinstance(given, tuple) else given

    return msgspec.structs.replace(call, arguments=tuple((name, value(given)) for name, given in call.arguments))
