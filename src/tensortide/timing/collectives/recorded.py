"""Communication ops of a recorded step: their kind among ``COLLECTIVES``, and the bytes of their message."""

from __future__ import annotations

from tensortide.graph.collectives import moves_data
from tensortide.graph.model import OpView

_KINDS = {
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "all_gather",
    "scatter": "broadcast",
    "send": "send_recv",
    "recv": "send_recv",
}
"""Kinds by a part of the op's name without underscores; the first that occurs. A gather moves the volume of an
all-gather to one rank, a scatter that of a broadcast."""


def kind_of(op: str) -> str | None:
    """The kind of a communication op (``c10d.allreduce_.default``); None for an op that moves no data, or unknown."""
    if not moves_data(op):
        return None
    name = op.split(".")[1].replace("_", "")
    return next((kind for part, kind in _KINDS.items() if part in name), None)


def payload_bytes(op: OpView) -> int:
    """Bytes of the largest tensor that a collective takes or makes in this process: as ``COLLECTIVES`` counts."""
    tensors = {tensor.storage: tensor for tensor in (*op.inputs, *op.outputs)}
    return max((int(tensor.region_bytes) for tensor in tensors.values()), default=0)
