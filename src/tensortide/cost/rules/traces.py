"""Nodes of execution traces that state their own cost. Counting convention: docs/cost.md."""

from __future__ import annotations

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


@rule("chakra::compute", formula="num_ops, as the trace states it")
def compute(op: OpCall) -> Cost | None:
    """A node of a Chakra trace: the operations, taken for those of products, and bytes that it states."""
    ops, nbytes = op.arg("num_ops"), op.arg("tensor_size", 0)
    if ops is None:
        return None
    op.let(num_ops=int(ops))
    return Cost(macs=int(ops) // 2, elementwise_flops=int(ops) % 2, read_bytes=int(nbytes))
