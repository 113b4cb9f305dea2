"""The size of the open first axis, tensor by tensor: the file stores 1 there also where operators make it larger."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.graph.handles import Handle
from tensortide.importers.tflite.operands import VIEWS
from tensortide.importers.tflite.schema import Model, Operator, Stored, Subgraph
from tensortide.importers.tflite.trips import whole_numbers


def first_axis(
    model: Model, graph: Subgraph, op: Operator, inputs: Sequence[tuple[int, Handle]], tensor: Stored
) -> int | None:
    """Return the first size of ``tensor``, which ``op`` computes and whose first axis is open, from those of its
    ``inputs`` (by their places); None where they do not tell it. It may carry an expression."""
    opened = [(graph.tensors[op.inputs[place]], handle) for place, handle in inputs]
    source = next(((stored, handle) for stored, handle in opened if stored.dynamic == (0,)), None)
    if source is None:
        return None
    stored, handle = source
    size = handle.shape[0]
    if op.name in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"):
        blocks = whole_numbers(model, graph, op.inputs[1]) if len(op.inputs) > 1 else None
        if not blocks or min(blocks) < 1:
            return None
        count = math.prod(blocks)
        return size * count if op.name == "SPACE_TO_BATCH_ND" else size // count
    if op.name in VIEWS:
        return size * math.prod(handle.shape[1:]) // (math.prod(tensor.shape[1:]) or 1)
    return size if tensor.shape[0] == stored.shape[0] else None
