"""Lookups and scattered writes. Counting convention: docs/cost.md, sorting, searching, indexing.

Lookups read their indices and the selected elements, not the table. Scattered writes touch only their targets; their
out-of-place forms copy the rest.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, reads, size, written
from tensortide.cost.families import gather, move
from tensortide.cost.kinds import Weights, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.dtypes import storage_bytes
from tensortide.graph.model import Tensor

aten = Vocabulary("aten", "scatter")
aten.rows({
    "embedding index _unsafe_index _index": gather(),
    "index_select gather take take_along_dim": gather("index"),
    "_unsafe_masked_index": gather("mask indices"),
    "masked_scatter masked_scatter_backward": move("Consecutive elements written where a mask holds."),
})  # fmt: skip


def _source(op: OpCall) -> Tensor | None:
    """Return the tensor that is written, None for a number."""
    for name in ("src", "source", "values", "value"):
        if isinstance(op.arg(name), Tensor):
            return op.tensor(name)
    return None


def touched(op: OpCall) -> int:
    """Elements of self that are written (an element hit twice counts twice)."""
    source, shape = _source(op), op.shape("self")
    if op.base.startswith(("index_put", "_index_put", "_unsafe_index_put", "_unsafe_masked_index_put", "put")):
        return _put_elements(op, shape, source)
    if op.base.startswith("scatter"):
        return op.tensor("index").numel
    if op.base.startswith("index_fill"):
        n = shape[op.arg("dim", 0)] if shape else 1
        return math.prod(shape) // max(1, n) * op.tensor("index").numel
    return source.numel if source is not None else op.tensor("self").numel


def _put_elements(op: OpCall, shape: tuple[int, ...], source: Tensor | None) -> int:
    """Broadcast indices select positions, dimensions without an index stay whole, a mask at most all."""
    indices = op.arg("indices", op.arg("index", ()))
    if isinstance(indices, Tensor):
        return indices.numel
    if any(isinstance(t, Tensor) and t.dtype in ("bool", "uint8") for t in indices):
        return source.numel if source is not None and source.numel > 1 else math.prod(shape)
    whole = [shape[i] for i in range(len(shape)) if i >= len(indices) or not isinstance(indices[i], Tensor)]
    picked = [index.shape for index in indices if isinstance(index, Tensor)]
    width = max((len(dims) for dims in picked), default=0)
    padded = [(1,) * (width - len(dims)) + dims for dims in picked]
    broadcast = [max(column) if 0 not in column else 0 for column in zip(*padded, strict=True)]
    return math.prod(whole) * math.prod(broadcast)


def _scatter_bytes(op: OpCall) -> Bytes:
    """Indices and source; the targets are read only to accumulate; out of place the rest is copied."""
    target = op.tensor("self")
    source = _source(op)
    moved = touched(op) * target.itemsize
    others = [t for name in ("index", "indices", "mask") for t in op.tensors(name)]
    read = size([*others, *([source] if source is not None else [])])
    if op.mutated:
        return Bytes(read + (moved if accumulates(op) else 0), moved)
    kept = 0 if accumulates(op) else min(moved, target.region_bytes)
    return Bytes(read + target.region_bytes - kept, written(op))


def accumulates(op: OpCall) -> bool:
    """Return whether the old value enters the new one."""
    if op.base.startswith(("scatter_add", "index_add", "scatter_reduce", "index_reduce")):
        return True
    return bool(op.arg("accumulate", False)) or op.has("reduce") or op.base.endswith("accumulate")


@aten(
    "scatter index_put _index_put_impl _unsafe_index_put index_fill index_copy put scatter_add index_add "
    "scatter_reduce index_reduce _unsafe_masked_index_put_accumulate",
    "0 to write; 1 per source element to accumulate",
    bytes=_scatter_bytes,
)
def scatter(op: OpCall) -> Cost:
    """Elements written to, or accumulated at, given places."""
    if not accumulates(op):
        return Cost()
    count = touched(op)
    op.let(elements=count)
    compared = int(op.arg("reduce", "") in ("amax", "amin"))
    factor = 2 if op.arg("alpha", 1) != 1 else 1
    return elements(op, count, Weights(factor, 0, compared, 2 * factor), kind_of([op.tensor("self")]))


def _dense_gradient(op: OpCall, rows: int, dim: int) -> Cost:
    op.let(rows=rows, dim=dim)
    flops = rows * dim * (1 + bool(op.arg("scale_grad_by_freq", False)))
    return Cost(elementwise_flops=flops, exact=False, reason="bound: no two indices are assumed equal")


@aten("embedding_dense_backward", "indices x dim adds (bound)", bytes=reads("grad_output", "indices"))
def embedding_backward(op: OpCall) -> Cost:
    """Rows summed into a dense gradient of the whole table."""
    return _dense_gradient(op, op.tensor("indices").numel, op.shape("grad_output")[-1])


SUM, MEAN, MAX = 0, 1, 2
"""Modes of bags."""


def _bag_bytes(op: OpCall) -> Bytes:
    """The indices and the rows they select are read."""
    given = [t for name in ("indices", "offsets", "per_sample_weights") for t in op.tensors(name)]
    rows = storage_bytes(op.tensor("weight").dtype, (op.tensor("indices").numel, op.shape("weight")[-1]))
    return Bytes(size(given) + rows, written(op))


@aten(
    "_embedding_bag _embedding_bag_forward_only embedding_bag",
    "(indices - bags) dim adds (+ bags dim for the mean; comparisons for the maximum)",
    bytes=_bag_bytes,
)
def embedding_bag(op: OpCall) -> Cost:
    """Rows looked up and reduced bag by bag."""
    indices, dim, bags = op.tensor("indices").numel, op.shape("weight")[-1], op.out.shape[0]
    mode = (SUM, MEAN, MAX)[op.arg("mode", SUM)]
    op.let(indices=indices, bags=bags, dim=dim)
    joins, mean = max(0, indices - bags) * dim, bags * dim * (mode == MEAN)
    return Cost(
        elementwise_flops=joins + indices * dim * op.has("per_sample_weights") + mean,
        transcendentals=mean,
        comparisons=joins * (mode == MAX),
    )


@aten(
    "_embedding_bag_backward _embedding_bag_dense_backward",
    "indices x dim adds (bound) (+ bags dim for the mean)",
    bytes=reads("grad", "indices", "offset2bag", "bag_size", "maximum_indices", "per_sample_weights"),
)
def embedding_bag_backward(op: OpCall) -> Cost:
    """The gradient of each bag summed into the rows it used."""
    (bags, dim), mode = op.shape("grad"), op.arg("mode", SUM)
    if op.sparse:  # a row for each index, none summed
        return Cost(elementwise_flops=(op.stored("out") or 0) * (mode == MEAN))
    rows = bags if mode == MAX else op.tensor("indices").numel
    return _dense_gradient(op, rows, dim) + Cost(elementwise_flops=bags * dim * (mode == MEAN))


@aten("_embedding_bag_per_sample_weights_backward", "indices x (2 dim - 1)")
def sample_weights_backward(op: OpCall) -> Cost:
    """A dot product of gradient and row per index."""
    return Cost(elementwise_flops=op.tensor("indices").numel * (2 * op.shape("grad")[-1] - 1))
