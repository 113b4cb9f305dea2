"""Communication ops of a recorded step: their kind among ``COLLECTIVES``, and the bytes of their message."""

from __future__ import annotations

from tensortide.graph.collectives import moves_data
from tensortide.graph.model import OpView, Tensor

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
    """Bytes of the largest argument or result of a collective in this process, a tensor or a list of them: as
    ``COLLECTIVES`` counts."""
    values = (*op.arguments.values(), *op.outputs)
    return max((sum(_regions(value).values()) for value in values), default=0)


def _regions(value: object) -> dict[Tensor, int]:
    """The bytes of each tensor in an argument."""
    if isinstance(value, Tensor):
        return {value: int(value.region_bytes)}
    if isinstance(value, tuple):
        return {tensor: nbytes for item in value for tensor, nbytes in _regions(item).items()}
    return {}
