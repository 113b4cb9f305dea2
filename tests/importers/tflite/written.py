"""Flat buffers of TensorFlow Lite written by hand: a few operators on tensors, with options."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tensortide.importers.tflite.schema import _OPERATORS, IDENTIFIER, Model, parse_model


class Table(NamedTuple):
    """A table by the numbers of its fields: tables, lists of them, texts, numbers or lists of numbers with a format."""

    fields: Mapping[int, object]


class Written(NamedTuple):
    """An operator: its name, its inputs and outputs by number, the options of newer operators."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[int, object]


def model_of(
    operators: Sequence[Written], shapes: Sequence[Sequence[int]], inputs: Sequence[int], outputs: Sequence[int],
    *called: tuple[Sequence[Written], Sequence[Sequence[int]], Sequence[int], Sequence[int]],
) -> tuple[Model, bytes]:  # fmt: skip
    """Return a model of float tensors of these ``shapes``, and its bytes; ``called`` are further subgraphs."""
    graphs = [(operators, shapes, inputs, outputs), *called]
    kinds = sorted({op.name for graph in graphs for op in graph[0]})
    codes = [_OPERATORS.index(kind) for kind in kinds]
    listed = [Table({0: ("b", min(code, 127)), 3: ("i", code)}) for code in codes]
    body = Table({0: ("I", 3), 1: listed, 2: [_graph(kinds, *graph) for graph in graphs], 4: [Table({})]})
    data = bytearray(8)
    data[4:8] = IDENTIFIER
    struct.pack_into("<I", data, 0, _emit(data, body))
    return parse_model("written.tflite", bytes(data)), bytes(data)


def _graph(
    kinds: list[str], operators: Sequence[Written], shapes: Sequence[Sequence[int]], inputs: Sequence[int],
    outputs: Sequence[int],
) -> Table:  # fmt: skip
    tensors = [Table({0: ("i", shape), 1: ("b", 0), 3: f"t{i}"}) for i, shape in enumerate(shapes)]
    listed = [
        Table({0: ("I", kinds.index(op.name)), 1: ("i", op.inputs), 2: ("i", op.outputs), 12: Table(op.options)})
        for op in operators
    ]
    return Table({0: tensors, 1: ("i", inputs), 2: ("i", outputs), 3: listed})


def _emit(data: bytearray, value: object) -> int:
    """Append a value, and what it refers to after it; its place."""
    if isinstance(value, Table):
        return _table(data, value.fields)
    data += bytes(-len(data) % 8 + 4)  # the elements of a list are aligned
    at = len(data)
    match value:
        case str():
            data += struct.pack("<I", len(value)) + value.encode() + b"\0"
        case [str(form), [*numbers]]:
            data += struct.pack(f"<I{len(numbers)}{form}", len(numbers), *numbers)
        case [*tables]:
            data += struct.pack("<I", len(tables)) + bytes(4 * len(tables))
            for i, table in enumerate(tables):
                _refer(data, at + 4 + 4 * i, table)
    return at


def _table(data: bytearray, fields: Mapping[int, object]) -> int:
    count = max(fields, default=-1) + 1
    data += bytes(-len(data) % 8)
    vtable = len(data)
    data += bytes(4 + 2 * count)
    data += bytes(-len(data) % 8)
    at = len(data)
    struct.pack_into("<HH", data, vtable, 4 + 2 * count, 8 + 8 * len(fields))
    data += struct.pack("<i", at - vtable) + bytes(4 + 8 * len(fields))
    for place, (number, value) in enumerate(fields.items()):
        struct.pack_into("<H", data, vtable + 4 + 2 * number, 8 + 8 * place)
        match value:
            case (str(form), int(plain)):
                struct.pack_into(f"<{form}", data, at + 8 + 8 * place, plain)
            case _:
                _refer(data, at + 8 + 8 * place, value)
    return at


def _refer(data: bytearray, at: int, value: object) -> None:
    """Append a value that the offset at ``at`` leads to."""
    target = _emit(data, value)
    struct.pack_into("<I", data, at, target - at)
