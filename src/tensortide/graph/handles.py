"""Parts of a graph under construction: handles of its tensors, outputs to be, loops."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import SupportsIndex, TypeAlias

from tensortide.dtypes import DTYPES, storage_bytes
from tensortide.errors import GraphError
from tensortide.graph.model import Phase, Role, Tensor, Value

Shape: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class Handle:
    """A tensor of the graph under construction: its index there, its shape and dtype, and the builder it is of."""

    index: int
    shape: tuple[int, ...]
    dtype: str
    owner: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Out:
    """An output of an op. ``view_of``: it lies in the storage of that tensor, with these ``strides`` and ``offset``
    (in elements); otherwise it has a storage of its own, of its dense size, with ``role``."""

    shape: Shape
    dtype: str = ""
    view_of: Handle | None = None
    strides: Shape | None = None
    offset: int = 0
    role: Role = Role.TEMPORARY
    name: str = ""


Given: TypeAlias = "Handle | Value | Sequence[Given]"
"""An argument: a tensor, a list of tensors with None for absent ones, or a value."""


class Body:
    """A loop of the graph under construction. Called with two tensors, it carries: the body reads the first as an
    iteration starts, and the second takes its place in the following one."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.carried: list[tuple[int, int]] = []

    def __call__(self, reads: Handle, following: Handle) -> None:
        """Carry ``following`` to the next iteration, which reads it as ``reads``."""
        if tuple(reads.shape) != tuple(following.shape) or reads.dtype != following.dtype:
            raise GraphError(
                f"a loop carries {following.dtype}{list(following.shape)} to where it reads "
                f"{reads.dtype}{list(reads.shape)}"
            )
        self.carried.append((reads.index, following.index))


def owned(what: str, handle: Handle, owner: object, count: int) -> int:
    """Return the index of ``handle``. Raises GraphError for what is no tensor of ``owner``, which has ``count``."""
    if not isinstance(handle, Handle):
        raise GraphError(f"{what}: {handle!r} is no tensor of the graph")
    if handle.owner is not owner or not 0 <= handle.index < count:
        raise GraphError(f"{what}: the tensor of shape {handle.shape} is of another graph")
    return handle.index


def checked_size(what: str, size: SupportsIndex) -> int:
    """Return ``size`` as an integer, its expression kept. Raises GraphError for what is none."""
    try:
        return size if isinstance(size, int) else operator.index(size)
    except TypeError:
        raise GraphError(f"{what} is {size!r}: an integer is needed") from None


def checked_shape(what: str, shape: Sequence[SupportsIndex], dtype: str) -> tuple[int, ...]:
    """Return ``shape`` as integers. Raises GraphError for what is no shape, and for an unknown dtype."""
    if dtype not in DTYPES:
        raise GraphError(f"{what} has the unknown dtype {dtype!r}; known are {', '.join(DTYPES)}")
    try:
        sizes = tuple([size if isinstance(size, int) else operator.index(size) for size in shape])
    except TypeError:
        raise GraphError(f"{what} has the shape {shape!r}: integers are needed") from None
    if sizes and min(map(int, sizes)) < 0:
        raise GraphError(f"{what} has the shape {sizes}: no dimension can be negative")
    return sizes


def contiguous(shape: Shape) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major tensor of ``shape``."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def extent_bytes(tensor: Tensor) -> int:
    """Bytes from the start of its storage to the end of the last element of ``tensor``; 0 without elements."""
    shape = tuple(map(int, tensor.shape))
    if 0 in shape:
        return 0
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(shape, tensor.strides, strict=True))
    return storage_bytes(tensor.dtype, (int(last + 1),))


def itself(handle: Handle, tensors: Sequence[Tensor]) -> Out:
    """Describe an output that is an input, written in place."""
    tensor = tensors[handle.index]
    return Out(tensor.shape, tensor.dtype, handle, tensor.strides, tensor.offset)


def phase_of(phase: Phase | str) -> Phase:
    """Return the phase that a text names. Raises GraphError for none."""
    try:
        return Phase(phase)
    except ValueError:
        raise GraphError(f"{phase!r} is no phase: {', '.join(Phase)}") from None
