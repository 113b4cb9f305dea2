"""Trips of WHILE operators: they stand only in the condition, a counter compared with a constant."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from tensortide.importers.symbols import steps_until
from tensortide.importers.tflite.schema import Model, Operator, Subgraph

_PASSES = frozenset({"RESHAPE", "CAST", "SQUEEZE", "EXPAND_DIMS"})
_MIRRORED = {"LESS": "GREATER", "LESS_EQUAL": "GREATER_EQUAL", "GREATER": "LESS", "GREATER_EQUAL": "LESS_EQUAL"}
_WIDTHS = {"int32": 4, "int64": 8}

MOST_NUMBERS = 16
"""Of constants with more elements none is looked at."""


def trips_of(model: Model, loop: Operator, starts: Mapping[int, int]) -> int | None:
    """Count how often the body of a WHILE runs; None where data decide it.

    ``starts`` are the loop variables whose first value is stored. Each comparison of a counter with a constant bounds
    the trips; of several that must all hold the least does.
    """
    graphs = []
    for key in ("cond", "body"):
        number = loop.number(key)
        if not 0 <= number < len(model.subgraphs):
            return None
        graphs.append(model.subgraphs[number])
    condition, body = graphs
    if (
        len(condition.outputs) != 1
        or len(condition.inputs) != len(body.inputs)
        or len(body.outputs) != len(body.inputs)
    ):
        return None
    makers = {index: op for op in condition.operators for index in op.outputs}
    return _bound(model, condition, body, makers, condition.outputs[0], starts, 0)


def _bound(
    model: Model, condition: Subgraph, body: Subgraph, makers: Mapping[int, Operator], index: int,
    starts: Mapping[int, int], depth: int,
) -> int | None:  # fmt: skip
    op = makers.get(index)
    if op is None or depth > 8:
        return None
    if op.name in _PASSES and op.inputs:
        return _bound(model, condition, body, makers, op.inputs[0], starts, depth + 1)
    if len(op.inputs) != 2:
        return None
    if op.name == "LOGICAL_AND":
        parts = [_bound(model, condition, body, makers, one, starts, depth + 1) for one in op.inputs]
        return None if parts[0] is None or parts[1] is None else min(parts[0], parts[1])
    for kind, (left, right) in ((op.name, op.inputs), (_MIRRORED.get(op.name, ""), op.inputs[::-1])):
        counter, other = _source(makers, left), _source(makers, right)
        limit = scalar(model, condition, other)
        if kind in _MIRRORED and counter in condition.inputs:
            variable = condition.inputs.index(counter)
            limit = _unchanged(body, condition, other, starts) if limit is None else limit
            step = _step(model, body, variable)
            if limit is not None and step is not None and variable in starts:
                rises, reaches = kind.startswith("LESS"), kind.endswith("EQUAL")
                return steps_until(limit, starts[variable], step, rises=rises, reaches=reaches)
    return None


def _source(makers: Mapping[int, Operator], index: int) -> int:
    seen = set()
    while index in makers and makers[index].name in _PASSES and makers[index].inputs and index not in seen:
        seen.add(index)
        index = makers[index].inputs[0]
    return index


def _step(model: Model, body: Subgraph, variable: int) -> int | None:
    """Return what the body adds to a loop variable in each trip."""
    makers = {index: op for op in body.operators for index in op.outputs}
    op = makers.get(_source(makers, body.outputs[variable]))
    if op is None or op.name not in ("ADD", "SUB") or len(op.inputs) != 2:
        return None
    own = body.inputs[variable]
    for left, right in (op.inputs, op.inputs[::-1]) if op.name == "ADD" else (op.inputs,):
        by = scalar(model, body, right)
        if _source(makers, left) == own and by is not None:
            return by if op.name == "ADD" else -by
    return None


def _unchanged(body: Subgraph, condition: Subgraph, index: int, starts: Mapping[int, int]) -> int | None:
    """Return the value of a loop variable that the body returns as it came."""
    if index not in condition.inputs:
        return None
    variable = condition.inputs.index(index)
    return starts.get(variable) if body.outputs[variable] == body.inputs[variable] else None


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
