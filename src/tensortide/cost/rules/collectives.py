"""Communication between devices: copies, and the arithmetic of reductions on the way.

Counting convention: docs/cost.md, bytes. How many devices take part is a value that is not known: a reduction counts
one operation per element received.
"""

from __future__ import annotations

from tensortide.cost.access import nothing
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import rule

FUNCTIONAL, IN_PLACE = "_c10d_functional::", "c10d::"
MOVING = (
    "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out all_to_all_single broadcast",
    "allgather_ _allgather_base_ broadcast_ alltoall_ alltoall_base_ scatter_ gather_",
)
REDUCING = (
    "all_reduce all_reduce_coalesced reduce_scatter_tensor reduce_scatter_tensor_coalesced",
    "allreduce_ allreduce_coalesced_ reduce_ reduce_scatter_ _reduce_scatter_base_",
)


def _names(texts: tuple[str, str]) -> list[str]:
    spaces = zip((FUNCTIONAL, IN_PLACE), texts, strict=True)
    return [space + name for space, text in spaces for name in text.split()]


@rule(*_names(MOVING), formula="0 FLOP: sent and received")
def moved(op: OpCall) -> Cost:
    """Data sent to other devices."""
    del op
    return Cost()


@rule(*_names(REDUCING), formula="1 per element received (bound from below)")
def reduced(op: OpCall) -> Cost:
    """Data combined with that of other devices."""
    outputs = op.outputs or op.mutated
    count = sum(tensor.numel for tensor in outputs)
    return Cost(elementwise_flops=count, exact=False, reason="one operation per element received")


@rule("_c10d_functional::wait_tensor", "c10d::barrier", formula="0", bytes=nothing, is_free=True)
def waited(op: OpCall) -> Cost:
    """Waiting for data to arrive."""
    del op
    return FREE
