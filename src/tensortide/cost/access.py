"""Algorithmic bytes: the distinct regions an op must read, and the regions it must write.

Two tensors that touch the same addresses (``x`` and its transpose) are one region. An expanded dimension counts
once. See the bytes section of docs/cost.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from tensortide.cost.opcall import OpCall, tensors_in
from tensortide.graph.model import Tensor

OVERWRITING = (
    "copy_ fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ geometric_ cauchy_ log_normal_ set_ "
    "_foreach_copy_ _foreach_zero_ resize_ eye_ _fill_mem_eff_dropout_mask_"
)
"""In-place ops whose result does not depend on what they overwrite."""


AT_ENTRIES = frozenset(["add_", "sub_", "mul", "div", "sparse_mask"])
"""Ops that touch a dense operand only where their sparse one has its entries."""


class Bytes(NamedTuple):
    """Bytes read and bytes written."""

    read: int
    written: int


BytesRule: TypeAlias = Callable[[OpCall], Bytes]
Region: TypeAlias = tuple[int, int, str, tuple[tuple[int, int], ...]]


def region(tensor: Tensor) -> Region:
    """Return the addresses a tensor touches: equal for a tensor, its transpose and its reshapes.

    In plain integers: which regions are the same is a question about this graph, not about its sizes.
    """
    strided = [(int(stride), int(n)) for n, stride in zip(tensor.shape, tensor.strides, strict=True)]
    merged: list[tuple[int, int]] = []
    for stride, n in sorted((stride, n) for stride, n in strided if n != 1 and stride):
        if merged and merged[-1][0] * merged[-1][1] == stride:
            merged[-1] = (merged[-1][0], merged[-1][1] * n)
        else:
            merged.append((stride, n))
    return (tensor.storage, int(tensor.offset), tensor.dtype, tuple(merged))


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct regions of ``tensors``."""
    tensors = tuple(tensors)
    if len(tensors) == 1:
        return tensors[0].region_bytes
    return sum({region(tensor): tensor.region_bytes for tensor in tensors}.values())


def interface(op: OpCall, unread: frozenset[str] = frozenset()) -> Bytes:
    """Every input but those ``unread`` is read once and every output written, as the op's schema says; of a sparse one
    the indices and values that it stores."""
    if not op.sparse:
        return Bytes(size(_read(op, unread)), written(op))
    sparse = {tensor for name in op.sparse for tensor in op.tensors(name)}
    stored = sum(found.nbytes for name, found in op.sparse.items() if name and name not in unread)
    dense = [tensor for tensor in _read(op, unread) if tensor not in sparse]
    return Bytes((_entries(op, dense) if op.base in AT_ENTRIES else size(dense)) + stored, written(op))


def _entries(op: OpCall, dense: Iterable[Tensor]) -> int:
    """Bytes of the elements of ``dense`` tensors where the sparse operand has its entries."""
    elements = max(found.elements for found in op.sparse.values())
    return sum(min(elements, tensor.numel) * tensor.itemsize for tensor in dense)


def sum_with(*factors: str) -> BytesRule:
    """A term and a product of ``factors``: as BLAS has it, neither is read where its own factor, ``beta`` or ``alpha``,
    is 0."""

    def moved(op: OpCall) -> Bytes:
        unread = ["self"] * (op.arg("beta", 1) == 0) + list(factors) * (op.arg("alpha", 1) == 0)
        return interface(op, frozenset(unread))

    return moved


def _read(op: OpCall, unread: frozenset[str]) -> Iterable[Tensor]:
    if not (op.mutated or unread):
        return op.inputs
    unread |= op.overwritten
    if op.base in OVERWRITING.split():
        unread |= {"self"}
    return [tensor for name, value in op.arguments.items() if name not in unread for tensor in tensors_in(value)]


def written(op: OpCall) -> int:
    """Bytes of what the op mutates and of outputs in memory of their own."""
    inputs = {tensor.storage for tensor in op.inputs}
    fresh = [tensor for tensor in op.outputs if tensor.storage not in inputs]
    if "" in op.sparse:
        return op.sparse[""].nbytes if fresh else 0
    if op.sparse and op.base in AT_ENTRIES:
        return _entries(op, [*op.mutated, *fresh])
    return size([*op.mutated, *fresh])


def nothing(_: OpCall) -> Bytes:
    """The op moves no bytes: a view, a question about metadata, an allocation."""
    return Bytes(0, 0)


def writes_only(op: OpCall) -> Bytes:
    """Inputs give shapes only."""
    return Bytes(0, written(op))


def reads(*names: str) -> BytesRule:
    """Only the arguments ``names`` are read: the others give shapes."""
    return lambda op: Bytes(size(t for name in names for t in op.tensors(name)), written(op))


def selected_rows(*names: str) -> BytesRule:
    """The arguments ``names`` (indices) are read, and as many elements of the table as there are outputs."""
    indices = reads(*names)
    return lambda op: Bytes(indices(op).read + op.out.nbytes, written(op))


def unless_view(op: OpCall) -> Bytes:
    """Nothing moves where the results lie in arguments."""
    homes = {tensor.storage for tensor in op.inputs}
    return Bytes(0, 0) if op.outputs and all(out.storage in homes for out in op.outputs) else interface(op)
