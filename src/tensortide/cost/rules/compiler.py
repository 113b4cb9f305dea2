"""Ops that PyTorch's compiler puts in place of ATen's. Each counts as the op it stands for: docs/cost.md."""

from __future__ import annotations

import math

from tensortide.cost.access import reads, writes_only
from tensortide.cost.forms import simple
from tensortide.cost.kinds import Kind, Weights, dtype_kind
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


@rule("prims::iota", formula="1 integer op per element", bytes=writes_only)
def iota(op: OpCall) -> Cost:
    """Start plus index times step."""
    return (
        Cost(int_ops=op.out.numel)
        if dtype_kind(op.out.dtype) is Kind.INTEGER
        else Cost(elementwise_flops=2 * op.out.numel)
    )


@rule("prims::inductor_seed", "prims::inductor_seeds", formula="1 draw per seed", bytes=writes_only)
@rule("prims::inductor_random", "prims::inductor_randint", formula="E random draws, written", bytes=writes_only)
def draws(op: OpCall) -> Cost:
    """One draw per element."""
    return Cost(random_draws=op.out.numel)


@rule("prims::inductor_lookup_seed", formula="0 FLOP: one seed of several")
@rule("prims::inductor_force_stride_order", formula="0 FLOP: a copy in another layout")
def moved(_: OpCall) -> Cost:
    """A value in another place."""
    return Cost()


rule("prims::fma", formula="2 per element", meaning="A product and a sum.")(simple(Weights(2, complex_flops=8)))


@rule("prims::prepare_softmax_online", formula="4n - 2 per row: the largest, then the sum of exponentials")
def softmax_statistics(op: OpCall) -> Cost:
    """Maximum and sum of exponentials of each row."""
    count, rows = op.inputs[0].numel, op.outputs[0].numel
    op.let(R=rows, n=count // max(1, rows))
    return Cost(elementwise_flops=4 * count - 2 * rows, transcendentals=count, comparisons=count - rows)


@rule("prims::_low_memory_max_pool_with_offsets", formula="K - 1 comparisons per output")
def max_pool(op: OpCall) -> Cost:
    """Largest of each window, and its place there."""
    compared = (math.prod(op.arg("kernel_size")) - 1) * op.out.numel
    return Cost(elementwise_flops=compared, comparisons=compared)


@rule(
    "prims::_low_memory_max_pool_offsets_to_indices",
    formula="2 d integer ops per element of d dimensions",
    bytes=reads("self"),
)
def pool_indices(op: OpCall) -> Cost:
    """Places in windows as places in the input."""
    return Cost(int_ops=2 * len(op.arg("kernel_size")) * op.out.numel)
