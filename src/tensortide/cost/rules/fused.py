"""Fused ops of edited graphs, which carry what they compute."""

from __future__ import annotations

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


@rule("fused::op", formula="macs MACs + elementwise_flops, as given")
def fused(op: OpCall) -> Cost | None:
    """The figures that the op was given when it was fused; unknown without them."""
    macs, elementwise = op.arg("macs"), op.arg("elementwise_flops")
    if macs is None or elementwise is None:
        return None
    return Cost(macs=macs, elementwise_flops=elementwise)
