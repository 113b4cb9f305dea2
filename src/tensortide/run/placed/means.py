"""Means over a batch, as ranks compute them of their part of it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tensortide.graph.model import Graph, OpView, Phase

_DIVISION = "aten.div.Scalar"


def local_means(graph: Graph, parts: int) -> Graph:
    """``graph`` of a rank, with the numbers by which gradients of means over the batch are divided those of its part.

    Autograd records the number of elements of the whole batch in a division of the gradient, which it has expanded
    over the elements before. Losses that compute their own mean have no such number.
    """
    calls, ops = list(graph.calls), list(graph.ops)
    for index, view in enumerate(graph):
        number = _elements(view, parts) if parts > 1 else None
        if number is not None:
            changed = tuple((name, number if name == "other" else value) for name, value in view.call.arguments)
            ops[index] = replace(view.op, call=len(calls))
            calls.append(replace(view.call, arguments=changed))
    return replace(graph, ops=tuple(ops), calls=tuple(calls))


def _elements(view: OpView, parts: int) -> int | None:
    """The elements of a mean over the part of a rank; None for an op that is no division by those of the whole."""
    if view.name != _DIVISION or view.phase is not Phase.BACKWARD:
        return None
    tensor, number = view.inputs[0], dict(view.call.arguments).get("other")
    expanded = [size for size, stride in zip(tensor.shape, tensor.strides, strict=True) if stride == 0]
    if not expanded or tensor.strides[0] != 0 or number != parts * math.prod(expanded):
        return None
    return math.prod(expanded)
