"""The nodes of an execution trace, in the order of the calls; read as a stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tensortide.dtypes import in_cpp
from tensortide.errors import TimesError
from tensortide.graph.handles import contiguous
from tensortide.timing.json_stream import members

DTYPES = in_cpp()


class TensorValue(NamedTuple):
    """A tensor as a node names it. Equal ``storage``: one is a view of the other. ``offset`` and ``strides`` count
    elements."""

    storage: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str


NodeValue: TypeAlias = TensorValue | tuple["NodeValue", ...] | bool | int | float | str | None


class Node(NamedTuple):
    """One call. ``caller`` is the node that made it, ``record`` its number in a profiler's trace of the same run.

    ``schema`` is that of a dispatched op, ``backend`` that of a compiled kernel; empty for what is neither.
    """

    id: int
    caller: int
    name: str
    schema: str
    backend: str
    record: int
    forward_thread: int
    inputs: tuple[NodeValue, ...]
    outputs: tuple[NodeValue, ...]


class _Side(msgspec.Struct):
    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] = []


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Node(msgspec.Struct):
    id: int
    name: str
    ctrl_deps: int
    inputs: _Side
    outputs: _Side
    attrs: list[_Attribute]


def read_nodes(path: str | os.PathLike[str]) -> list[Node]:
    """Read the nodes. Raises TimesError, which names the file and the place in it, if it is none or is damaged."""
    found: list[Node] = []
    for key, item in members(path, "nodes", "execution trace of PyTorch (JSON)"):
        if key != "nodes":
            continue
        try:
            found.append(_node(msgspec.convert(item, _Node)))
        except (msgspec.ValidationError, ValueError, TypeError, IndexError) as error:
            raise TimesError(f"{path}: node {len(found)} is no node of an execution trace: {error}") from error
    if not found:
        raise TimesError(f"{path}: it has no nodes")
    found.sort()  # children may precede their callers
    return found


def _node(given: _Node) -> Node:
    attributes = {attribute.name: attribute.value for attribute in given.attrs}
    return Node(
        given.id,
        given.ctrl_deps,
        given.name,
        str(attributes.get("op_schema", "")),
        str(attributes.get("kernel_backend", "")),
        int(attributes.get("rf_id", 0)),
        int(attributes.get("fw_tid", 0)),
        tuple(_values(given.inputs)),
        tuple(_values(given.outputs)),
    )


def _values(side: _Side) -> Iterator[NodeValue]:
    strides = side.strides or [None] * len(side.values)
    for value, kind, shape, stride in zip(side.values, side.types, side.shapes, strides, strict=True):
        yield _value(value, kind, shape, stride)


def _value(value: Any, kind: str, shape: Any, strides: Any) -> NodeValue:
    if kind.startswith("Tensor("):
        return _tensor(value, kind, shape, strides)
    if kind.startswith(("GenericList[", "Tuple[")) and isinstance(value, list):
        kinds = list(_parts(kind[kind.index("[") + 1 : -1]))
        shapes = shape if isinstance(shape, list) and len(shape) == len(value) else [[]] * len(value)
        inner = strides if isinstance(strides, list) and len(strides) == len(value) else [[]] * len(value)
        return tuple(_value(*each) for each in zip(value, kinds, shapes, inner, strict=True))
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (bool, int, float, str)):
        return None if value == "<None>" else value
    return None if value is None else str(value)


def _tensor(value: Any, kind: str, shape: Any, strides: Any) -> TensorValue | None:
    _, storage, offset, _, item, device = value
    if not item:
        return None  # an undefined tensor
    dtype = DTYPES.get(kind[len("Tensor(") : -1])
    if dtype is None:
        raise ValueError(f"a tensor of the unknown type {kind}")
    sizes = tuple(map(int, shape))
    known = isinstance(strides, list) and len(strides) == len(sizes)
    return TensorValue(
        storage, offset, dtype, sizes, tuple(map(int, strides)) if known else contiguous(sizes), str(device)
    )


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that are in no brackets."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "[(<") - (sign in "])>")
        if sign == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text:
        yield text[start:].strip()
