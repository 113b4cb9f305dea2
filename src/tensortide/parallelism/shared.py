"""Results that several ways of dividing one step have in common, each computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph
from tensortide.parallelism.analysis import Analysis

P = ParamSpec("P")
Result = TypeVar("Result")


class Shared:
    """Results of functions by their arguments: a Graph and its Analysis as the same objects, others as equal values.

    Configurations of a step have parts of its batch and ranks of its tensor group in common. What a function refuses
    with a DegreesError is kept too.

    Examples:
        >>> shared = Shared()
        >>> shared(divmod, 7, 2), shared(divmod, 7, 2)
        ((3, 1), (3, 1))
    """

    def __init__(self) -> None:
        self._found: dict[object, tuple[Any, DegreesError | None]] = {}
        self._kept: dict[int, object] = {}

    def __call__(self, function: Callable[P, Result], *args: P.args, **options: P.kwargs) -> Result:
        """``function(*args, **options)``. Raises DegreesError as ``function`` does."""
        key = (function, *map(self._part, args), *((name, self._part(value)) for name, value in options.items()))
        if key not in self._found:
            try:
                self._found[key] = function(*args, **options), None
            except DegreesError as error:
                self._found[key] = None, DegreesError(str(error))
        found, refused = self._found[key]
        if refused is not None:
            raise DegreesError(str(refused))
        result: Result = found
        return result

    def _part(self, value: object) -> object:
        """The part of a key for an argument. One known by its identity is kept, so that no other gets its number."""
        if not isinstance(value, Graph | Analysis):
            return value
        self._kept[id(value)] = value
        return Graph, id(value)
