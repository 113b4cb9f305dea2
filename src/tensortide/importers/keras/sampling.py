"""Random inputs like those of a batch, as NumPy arrays, from a generator of their own."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tensortide.errors import MetricError

Range: TypeAlias = tuple[float, float]
Distribution: TypeAlias = Literal["uniform", "normal"]
Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class ArraySample:
    """An array of a batch, as far as random ones are like it. ``shape`` is that of one sample if it is ``batched``."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    batched: bool
    distribution: Distribution
    range: Range | None

    def random(self, batch_size: int, generator: np.random.Generator) -> Array:
        """Make a random array for a batch of that size."""
        shape = (batch_size, *self.shape) if self.batched else self.shape
        if self.dtype.kind == "b":
            return generator.integers(0, 2, shape).astype(bool)
        if self.dtype.kind in "iu":
            low, high = self.range or (0, 0)
            return generator.integers(int(low), int(high), shape, endpoint=True).astype(self.dtype)
        if self.dtype.kind == "c":
            return np.asarray(self._real(shape, generator) + 1j * self._real(shape, generator), self.dtype)
        return self._real(shape, generator).astype(self.dtype)

    def _real(self, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
        if self.distribution == "normal" and self.range is None:
            return generator.standard_normal(shape)
        low, high = self.range or (0.0, 1.0)
        return low + (high - low) * generator.random(shape)


def sample(
    arguments: Any, array: Callable[[Any], Array], *, distribution: Distribution = "uniform",
    ranges: Mapping[int | str, Range] | None = None,
) -> Any:  # fmt: skip
    """Describe arguments: the same containers with an ArraySample for each tensor.

    Raises MetricError for a leaf that is no array of numbers, and for a range of no argument or of no value.
    """
    positional, named = arguments
    given: dict[Any, Any] = {**dict(enumerate(positional)), **named}
    declared = dict(ranges or {})
    if unknown := [key for key in declared if key not in given]:
        raise MetricError(f"there is no argument {unknown[0]!r} to declare a range of; there are {[*given]}")
    for key, (low, high) in declared.items():
        if not low <= high:
            raise MetricError(f"the range of the argument {key!r} is empty: {low} is above {high}")
    arrays = {key: mapped(lambda leaf: _numbers(array, leaf), value) for key, value in given.items()}
    sizes: collections.Counter[int] = collections.Counter()
    mapped(lambda leaf: sizes.update(leaf.shape[:1]), [*arrays.values()])
    size = sizes.most_common(1)[0][0] if sizes else None

    def described(key: int | str) -> Any:
        return mapped(lambda leaf: _described(leaf, size, distribution, declared.get(key)), arrays[key])

    return tuple(described(i) for i in range(len(positional))), {name: described(name) for name in named}


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to every leaf of nested containers."""
    if isinstance(value, Mapping):
        return {key: mapped(function, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        make = getattr(value, "_make", type(value))  # of a named tuple
        return make(mapped(function, inner) for inner in value)
    return function(value)


def _numbers(array: Callable[[Any], Array], leaf: Any) -> Array:
    found = array(leaf) if hasattr(leaf, "shape") or isinstance(leaf, int | float | bool) else None
    if found is None or found.dtype.kind in "OUSM":
        raise MetricError(
            f"an argument is no array of numbers (type: {type(leaf).__name__}): random inputs are made of those; "
            "override random_inputs of the ForwardPass"
        )
    return found


def _described(leaf: Array, size: int | None, distribution: Distribution, declared: Range | None) -> ArraySample:
    batched = leaf.ndim > 0 and leaf.shape[0] == size
    shape = leaf.shape[1:] if batched else leaf.shape
    observed = (int(leaf.min()), int(leaf.max())) if leaf.dtype.kind in "iu" and leaf.size else None
    return ArraySample(shape, leaf.dtype, batched, distribution, declared or observed)
