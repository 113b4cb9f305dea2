"""Lookups and scattered writes. Counting convention: docs/cost.md, sorting, searching, indexing.

Lookups read their indices and the selected elements, not the table. Scattered writes touch only their targets; their
out-of-place forms copy the rest.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, reads, selected_rows, size, written
from tensortide.cost.kinds import Kind, Weights, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.graph.model import Tensor


@rule("aten::embedding", formula="0 FLOP: the rows selected", bytes=selected_rows("indices"))
@rule(
    "aten::index", "aten::_unsafe_index", "aten::_index", formula="0 FLOP: elements selected",
    bytes=selected_rows("indices"),
)  # fmt: skip
@rule(
    "aten::index_select", "aten::gather", "aten::take", "aten::take_along_dim", formula="0 FLOP: elements selected",
    bytes=selected_rows("index"),
)  # fmt: skip
@rule("aten::_unsafe_masked_index", formula="0 FLOP: elements selected", bytes=selected_rows("mask", "indices"))
def lookup(op: OpCall) -> Cost:
    """Elements or rows picked by index."""
    del op
    return Cost()


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


@rule(
    "aten::scatter", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put", "aten::index_fill",
    "aten::index_copy", "aten::put", "aten::scatter_add", "aten::index_add", "aten::scatter_reduce",
    "aten::index_reduce", "aten::_unsafe_masked_index_put_accumulate",
    formula="0 to write; 1 per source element to accumulate", bytes=_scatter_bytes,
)  # fmt: skip
def scatter(op: OpCall) -> Cost:
    """Elements written to, or accumulated at, given places."""
    if not accumulates(op):
        return Cost()
    count = touched(op)
    op.let(elements=count)
    reduction = op.arg("reduce", "")
    compared = int(reduction in ("amax", "amin"))
    factor = 2 if op.arg("alpha", 1) != 1 else 1
    return elements(op, count, Weights(factor, 0, compared, 2 * factor), kind_of([op.tensor("self")]))


@rule("aten::masked_scatter", "aten::masked_scatter_backward", formula="0 FLOP")
def masked_scatter(op: OpCall) -> Cost:
    """Consecutive elements written where a mask holds."""
    del op
    return Cost()


def _dense_gradient(op: OpCall, rows: int, dim: int) -> Cost:
    op.let(rows=rows, dim=dim)
    flops = rows * dim
    if op.arg("scale_grad_by_freq", False):
        flops += rows * dim
    return Cost(elementwise_flops=flops, exact=False, reason="bound: no two indices are assumed equal")


@rule("aten::embedding_dense_backward", formula="indices x dim adds (bound)", bytes=reads("grad_output", "indices"))
def embedding_backward(op: OpCall) -> Cost:
    """Rows summed into a dense gradient of the whole table."""
    return _dense_gradient(op, op.tensor("indices").numel, op.shape("grad_output")[-1])


MODES = ("sum", "mean", "max")


@rule(
    "aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::embedding_bag",
    formula="(indices - bags) dim adds (+ bags dim for the mean; comparisons for the maximum)",
    bytes=lambda op: Bytes(
        size([*op.tensors("indices"), *op.tensors("offsets"), *op.tensors("per_sample_weights")])
        + op.tensor("indices").numel * op.shape("weight")[-1] * op.tensor("weight").itemsize,
        written(op),
    ),
)  # fmt: skip
def embedding_bag(op: OpCall) -> Cost:
    """Rows looked up and reduced bag by bag."""
    indices, dim = op.tensor("indices").numel, op.shape("weight")[-1]
    bags, mode = op.out.shape[0], MODES[op.arg("mode", 0)]
    op.let(indices=indices, bags=bags, dim=dim)
    joins = max(0, indices - bags) * dim
    weighted = indices * dim if op.has("per_sample_weights") else 0
    mean = bags * dim if mode == "mean" else 0
    return Cost(
        elementwise_flops=joins + weighted + mean,
        transcendentals=mean,
        comparisons=joins if mode == "max" else 0,
    )


@rule(
    "aten::_embedding_bag_backward", "aten::_embedding_bag_dense_backward",
    formula="indices x dim adds (bound) (+ bags dim for the mean)",
    bytes=reads("grad", "indices", "offset2bag", "bag_size", "maximum_indices", "per_sample_weights"),
)  # fmt: skip
def embedding_bag_backward(op: OpCall) -> Cost:
    """The gradient of each bag summed into the rows it used."""
    bags, dim = op.shape("grad")
    rows = bags if op.arg("mode", 0) == 2 else op.tensor("indices").numel
    mean = Cost(elementwise_flops=bags * dim if op.arg("mode", 0) == 1 else 0)
    return _dense_gradient(op, rows, dim) + mean


@rule("aten::_embedding_bag_per_sample_weights_backward", formula="indices x (2 dim - 1)")
def sample_weights_backward(op: OpCall) -> Cost:
    """A dot product of gradient and row per index."""
    dim = op.shape("grad")[-1]
    return Cost(elementwise_flops=op.tensor("indices").numel * (2 * dim - 1))


@rule("aten::_masked_scale", formula="2 per element")
def masked_scale(op: OpCall) -> Cost:
    """A mask and a scale."""
    return elements(op, op.out.numel, Weights(2), Kind.REAL)
