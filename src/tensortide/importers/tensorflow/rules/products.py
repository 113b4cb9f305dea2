"""Matrix products and convolutions of TensorFlow graphs. Counting convention: docs/cost.md, products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.cost.access import reads
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.products import product
from tensortide.importers.tensorflow.rules.moves import tf


@tf("MatMul SparseMatMul", "m n k MACs")
def matmul(op: OpCall) -> Cost:
    """Product of (m,k) and (k,n), either of them possibly transposed."""
    m, k = op.inputs[0].shape
    if op.arg("transpose_a", False):
        m, k = k, m
    op.let(m=m, n=op.out.shape[-1], k=k)
    return product(op, op.out.numel * k)


@tf("BatchMatMul BatchMatMulV2 BatchMatMulV3", "b m n k MACs")
def batch_matmul(op: OpCall) -> Cost:
    """Batch of products; either operand possibly transposed, or broadcast over the batch."""
    k = op.shape("x")[-2 if op.arg("adj_x", False) else -1]
    op.let(k=k, E=op.out.numel)
    return product(op, op.out.numel * k)


@tf("Einsum XlaEinsum", "product of all distinct indices MACs; without a contraction 1 per output element")
def einsum(op: OpCall) -> Cost | None:
    """A sum of products of one or two operands (Einstein's notation)."""
    left, _, right = str(op.arg("equation", "")).replace(" ", "").partition("->")
    terms = _indices(left.split(","), op)
    if terms is None or len(terms) > 2:
        return None
    sizes: dict[str, int] = {}
    for term, x in zip(terms, op.inputs, strict=True):
        for name, n in zip(term, x.shape, strict=True):
            sizes[name] = max(n, sizes.get(name, 1))
    kept = {name for name in sizes if name in right or name.isdigit()}
    private = {name for name in sizes if name not in kept and sum(name in term for term in terms) == 1}
    summed = sum(x.numel for term, x in zip(terms, op.inputs, strict=True) if private.intersection(term))
    shared = math.prod(n for name, n in sizes.items() if name not in private)
    if len(terms) < 2 or all(name in kept for name in sizes if name not in private):
        return product(op, 0, summed + (shared if len(terms) > 1 else 0))
    return product(op, shared, summed)


def _indices(terms: Sequence[str], op: OpCall) -> list[list[str]] | None:
    """Return the indices of each operand; those that an ellipsis stands for are digits, counted from the right. None:
    they do not fit."""
    if len(terms) != len(op.inputs):
        return None
    found = []
    for term, x in zip(terms, op.inputs, strict=True):
        before, dots, after = term.partition("...")
        extra = len(x.shape) - len(before) - len(after)
        if extra < 0 or (extra and not dots):
            return None
        found.append([*before, *(str(i) for i in reversed(range(extra))), *after])
    return found


@tf("Conv2D Conv3D", "N O kh kw (Cin/g) Cout MACs; the filter is (kh, kw, Cin/g, Cout)")
@tf("DepthwiseConv2dNative", "E kh kw MACs")
@tf(
    "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput",
    "as the convolution", "Gradient of a convolution's input.", bytes=reads("filter", "out_backprop"),
)  # fmt: skip
@tf(
    "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter",
    "as the convolution", "Gradient of a convolution's filter.", bytes=reads("input", "out_backprop"),
)  # fmt: skip
def convolution(op: OpCall) -> Cost:
    """Every output site meets the whole filter once, taps on padding included; depthwise, its channel's part of it."""
    made = op.tensor("out_backprop") if "Backprop" in op.base else op.out
    kernel = op.out.shape if "BackpropFilter" in op.base else op.shape("filter")
    if "Depthwise" in op.base:
        return product(op, made.numel * math.prod(kernel[:2]))
    layout = str(op.arg("data_format", ""))  # left out of a SavedModel where it is the default: channels last
    channel = layout.find("C") if "C" in layout else len(made.shape) - 1
    sites, taps = math.prod(n for i, n in enumerate(made.shape) if i != channel), math.prod(kernel)
    op.let(sites=sites, filter=taps)
    return product(op, sites * taps)
