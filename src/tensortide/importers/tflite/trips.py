"""Trips of WHILE operators: they stand only in the condition, a counter compared with a constant."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tensortide.importers.tflite.schema import Model, Operator, Subgraph
from tensortide.importers.trips import NOTHING, Counting

_Tensor: TypeAlias = tuple[bool, int]
_NAMES = {
    "LESS": "lt", "LESS_EQUAL": "le", "GREATER": "gt", "GREATER_EQUAL": "ge", "EQUAL": "eq",
    "NOT_EQUAL": "ne", "LOGICAL_AND": "and", "LOGICAL_OR": "or", "LOGICAL_NOT": "not", "ADD": "add", "SUB": "sub",
     **dict.fromkeys(("RESHAPE", "CAST", "SQUEEZE", "EXPAND_DIMS"), "same"),
}  # fmt: skip
_WIDTHS = {"int32": 4, "int64": 8}

MOST_NUMBERS = 16
"""Of constants with more elements none is looked at."""


def trips_of(model: Model, loop: Operator, starts: Mapping[int, int]) -> int | None:
    """Count how often the body of a WHILE runs; None where data decide it.

    ``starts`` are the loop variables whose first value is stored.
    """
    graphs = []
    for key in ("cond", "body"):
        number = loop.number(key)
        if not 0 <= number < len(model.subgraphs):
            return None
        graphs.append(model.subgraphs[number])
    condition, body = graphs
    if len(condition.outputs) != 1 or not len(condition.inputs) == len(body.inputs) == len(body.outputs):
        return None
    return _Loop(model, condition, body, starts).counting.trips((True, condition.outputs[0]))


class _Loop:
    """The condition and the body of a WHILE as one graph: a tensor is numbered in either (True: in the condition);
    what the condition takes is what the body does."""

    def __init__(self, model: Model, condition: Subgraph, body: Subgraph, starts: Mapping[int, int]) -> None:
        self.model, self.starts, self.graphs = model, starts, (body, condition)
        self.makers = [{index: op for op in graph.operators for index in op.outputs} for graph in self.graphs]
        self.counting = Counting(self.made, self.number, self.carried)

    def made(self, tensor: _Tensor) -> tuple[str, Sequence[_Tensor]]:
        side, index = tensor
        if side and index in self.graphs[1].inputs:
            return "same", [(False, self.graphs[0].inputs[self.graphs[1].inputs.index(index)])]
        op = self.makers[side].get(index)
        return NOTHING if op is None else (_NAMES.get(op.name, ""), [(side, one) for one in op.inputs])

    def number(self, tensor: _Tensor) -> int | None:
        return scalar(self.model, self.graphs[tensor[0]], tensor[1])

    def carried(self, tensor: _Tensor) -> tuple[int | None, _Tensor] | None:
        side, index = tensor
        if side or index not in self.graphs[0].inputs:
            return None
        place = self.graphs[0].inputs.index(index)
        return self.starts.get(place), (False, self.graphs[0].outputs[place])


def scalar(model: Model, graph: Subgraph, index: int) -> int | None:
    """Return the whole number that a constant is."""
    found = whole_numbers(model, graph, index)
    return found[0] if found is not None and len(found) == 1 else None


def whole_numbers(model: Model, graph: Subgraph, index: int) -> tuple[int, ...] | None:
    """Return the whole numbers of a constant that has at most ``MOST_NUMBERS``; None for another tensor."""
    tensor = graph.tensors[index] if 0 <= index < len(graph.tensors) else None
    if tensor is None or tensor.dtype not in _WIDTHS:
        return None
    start, length = tensor.span
    count, width = math.prod(tensor.shape), _WIDTHS[tensor.dtype]
    if count > MOST_NUMBERS or length < max(count, 1) * width:
        return None
    form = f"<{count}{'i' if width == 4 else 'q'}"
    return struct.unpack_from(form, model.file.data, start)
