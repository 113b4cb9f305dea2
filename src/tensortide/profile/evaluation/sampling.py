"""Random inputs like those of a batch, from a generator of their own."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from tensortide.errors import MetricError
from tensortide.profile.evaluation.calls import Arguments
from tensortide.profile.evaluation.nested import mapped, tensor_of

Range: TypeAlias = tuple[float, float]
"""Least and greatest value."""
Distribution: TypeAlias = Literal["uniform", "normal"]

_WIDE = (torch.float64, torch.complex128)
_TOP = 2**63 - 1


@dataclass(frozen=True)
class TensorSample:
    """A tensor of a batch, as far as random ones are like it. ``shape`` is that of one sample if it is ``batched``,
    else the whole shape: a tensor whose first axis is not the batch."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    batched: bool
    distribution: Distribution
    range: Range | None
    """Of integers as observed or declared; of floats where it was declared."""

    def random(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Make a random tensor for a batch of that size."""
        shape = (batch_size, *self.shape) if self.batched else self.shape
        if self.dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            low, high = self.range or (0, 0)
            if low == high:
                return torch.full(shape, int(low), dtype=self.dtype)
            return torch.randint(int(low), min(int(high) + 1, _TOP), shape, generator=generator).to(self.dtype)
        real = self._real(shape, generator)
        return (torch.complex(real, self._real(shape, generator)) if self.dtype.is_complex else real).to(self.dtype)

    def _real(self, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        dtype = torch.float64 if self.dtype in _WIDE else torch.float32
        if self.distribution == "normal" and self.range is None:
            return torch.randn(shape, generator=generator, dtype=dtype)
        low, high = self.range or (0.0, 1.0)
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=dtype)


def sample(
    arguments: Arguments, *, distribution: Distribution = "uniform", ranges: Mapping[int | str, Range] | None = None
) -> Any:
    """Describe arguments: the same containers with a TensorSample for each tensor or NumPy array.

    ``ranges`` declares the least and the greatest value of an argument by position or name, floats then are uniform.
    Integers are otherwise in the range of this batch.

    Raises MetricError for a leaf of another type, and for a range of no argument, of no value, or beyond the dtype.
    """
    positional, named = arguments
    declared = dict(ranges or {})
    size = _batch_size(arguments)
    given: dict[Any, Any] = {**dict(enumerate(positional)), **named}
    if unknown := [key for key in declared if key not in given]:
        raise MetricError(f"there is no argument {unknown[0]!r} to declare a range of; there are {[*given]}")
    for key, (low, high) in declared.items():
        if not low <= high:
            raise MetricError(f"the range of the argument {key!r} is empty: {low} is above {high}")

    def described_of(key: int | str) -> Any:
        return mapped(
            lambda leaf, path: _described(leaf, path, size, distribution, declared.get(key)),
            given[key],
            f"argument {key!r}",
        )

    described = {key: described_of(key) for key in given}
    return tuple(described[i] for i in range(len(positional))), {name: described[name] for name in named}


def random(described: Any, batch_size: int, *, seed: int = 0) -> Any:
    """Make random arguments like those that ``sample`` described. Raises MetricError for a batch of none."""
    if batch_size < 1:
        raise MetricError(f"a random batch has at least 1 sample, not {batch_size}")
    generator = torch.Generator().manual_seed(seed)
    return mapped(lambda leaf, path: leaf.random(batch_size, generator), described)


def shapes(described: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of all tensors that ``sample`` described, without the batch axis, in one tuple."""
    found: list[tuple[int, ...]] = []
    mapped(lambda leaf, path: found.append(leaf.shape), described)
    return tuple(found)


def _batch_size(arguments: Any) -> int | None:
    """The first size that most tensors have; of equally many, that which comes first."""
    sizes: collections.Counter[int] = collections.Counter()

    def count(leaf: Any, path: str) -> None:
        if isinstance(leaf, torch.Tensor | np.ndarray) and leaf.ndim:
            sizes[leaf.shape[0]] += 1

    mapped(count, tuple(arguments))
    return sizes.most_common(1)[0][0] if sizes else None


def _described(
    leaf: Any, path: str, size: int | None, distribution: Distribution, declared: Range | None
) -> TensorSample:
    kind = f"array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
    if isinstance(leaf, np.ndarray):
        leaf = tensor_of(leaf)
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.is_quantized:
        raise MetricError(
            f"{path} is no dense tensor (type: {kind}): random inputs are made of those and of arrays of numbers; "
            "override random_inputs of the ForwardPass"
        )
    shape, batched = tuple(leaf.shape), leaf.ndim > 0 and leaf.shape[0] == size
    whole = not (leaf.is_floating_point() or leaf.is_complex() or leaf.dtype is torch.bool)
    range_ = declared
    if whole and declared is not None:
        limits = torch.iinfo(leaf.dtype)
        if not limits.min <= declared[0] <= declared[1] <= limits.max:
            kind = str(leaf.dtype).removeprefix("torch.")
            raise MetricError(f"{path} is of {kind}, which does not hold all of {declared[0]} to {declared[1]}")
    elif whole and leaf.numel():
        if leaf.is_meta:
            raise MetricError(f"{path} has no values on the device 'meta': declare the range of its integers")
        values = leaf.long()  # some dtypes have no least value
        range_ = int(values.min()), int(values.max())
    return TensorSample(shape[1:] if batched else shape, leaf.dtype, batched, distribution, range_)
