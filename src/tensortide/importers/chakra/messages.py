"""Messages of Chakra, decoded and encoded by their field numbers. What a file has in canonical order comes back byte
by byte."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from tensortide.importers.protobuf import Message, Schema, WireError

Scalar: TypeAlias = bool | int | float | str | bytes


class NodeType(enum.IntEnum):
    """Kinds of nodes."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CommType(enum.IntEnum):
    """Kinds of collectives: the attribute ``comm_type``."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class Attribute(msgspec.Struct, frozen=True):
    """A named value. ``kind`` is its type in the file: ``int64``, ``bool``, ``string``, ...; a list has a tuple."""

    name: str
    kind: str
    value: Scalar | tuple[Scalar, ...] | None
    doc: str = ""


class Values(msgspec.Struct, frozen=True):
    """Inputs or outputs of a node: texts of their values, shapes and types."""

    values: str = ""
    shapes: str = ""
    types: str = ""


class Node(msgspec.Struct, frozen=True):
    """One node. It waits for those that it names in ``control`` and ``data``."""

    id: int
    name: str = ""
    type: NodeType = NodeType.INVALID
    control: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    inputs: Values | None = None
    outputs: Values | None = None
    attributes: tuple[Attribute, ...] = ()

    def attribute(self, name: str) -> Scalar | tuple[Scalar, ...] | None:
        """The value of an attribute; None if there is none of that name."""
        return next((one.value for one in self.attributes if one.name == name), None)


class Chakra(msgspec.Struct, frozen=True):
    """A trace of one rank. ``groups``: the ranks of each process group by its number, from the file beside it."""

    version: str
    nodes: tuple[Node, ...]
    attributes: tuple[Attribute, ...] = ()
    groups: Mapping[int, tuple[int, ...]] = {}


_KINDS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
"""Kinds of values in the order of their field numbers: the first has 3, its list 4."""
_TABLE = """
GlobalMetadata: string version=1, AttributeProto* attr=2
Node: uint64 id=1, string name=2, uint32 type=3, uint64* ctrl_deps=4, uint64* data_deps=5,
    uint64 start_time_micros=6, uint64 duration_micros=7, IOInfo inputs=8, IOInfo outputs=9, AttributeProto* attr=10
IOInfo: string values=1, string shapes=2, string types=3
AttributeProto: string name=1, string doc_string=2"""
_VALUES = (f"{k}| {k}_val={3 + 2 * i}, List{k}| {k}_list={4 + 2 * i}" for i, k in enumerate(_KINDS))
SCHEMA = Schema("\n".join([", ".join([_TABLE, *_VALUES]), *(f"List{kind}: {kind}* values=1" for kind in _KINDS)]))


def decode_metadata(data: bytes) -> tuple[str, tuple[Attribute, ...]]:
    """Read the version and the attributes of a GlobalMetadata. Raises WireError."""
    found = SCHEMA.read("GlobalMetadata", data)
    return found.version, tuple(map(_attribute, found.attr))


def decode_node(data: bytes) -> Node:
    """Read a Node. Raises WireError."""
    found = SCHEMA.read("Node", data)
    if found.type not in {kind.value for kind in NodeType}:
        raise WireError(f"node {found.id} has the unknown type {found.type}")
    return Node(
        found.id, found.name, NodeType(found.type), tuple(found.ctrl_deps), tuple(found.data_deps),
        found.start_time_micros, found.duration_micros, _side(found, "inputs"), _side(found, "outputs"),
        tuple(map(_attribute, found.attr)),
    )  # fmt: skip


def _side(node: Message, name: str) -> Values | None:
    side = getattr(node, name)
    return Values(side.values, side.shapes, side.types) if name in node else None


def _attribute(found: Message) -> Attribute:
    kind, _, form = found.which.partition("_")
    value: Any = getattr(found, found.which) if kind else None
    return Attribute(found.name, kind, tuple(value.values) if form == "list" else value, found.doc_string)


def encode_metadata(trace: Chakra) -> bytes:
    """Write a GlobalMetadata."""
    return SCHEMA.write("GlobalMetadata", {"version": trace.version, "attr": map(_plain, trace.attributes)})


def encode_node(node: Node) -> bytes:
    """Write a Node; fields of no value are left out."""
    values = {
        "id": node.id, "name": node.name, "type": int(node.type), "ctrl_deps": node.control, "data_deps": node.data,
        "start_time_micros": node.start_us, "duration_micros": node.duration_us,
        "inputs": node.inputs and msgspec.structs.asdict(node.inputs),
        "outputs": node.outputs and msgspec.structs.asdict(node.outputs), "attr": map(_plain, node.attributes),
    }  # fmt: skip
    return SCHEMA.write("Node", values)


def _plain(one: Attribute) -> dict[str, object]:
    value = (
        {f"{one.kind}_list": {"values": one.value}} if isinstance(one.value, tuple) else {f"{one.kind}_val": one.value}
    )
    return {"name": one.name, "doc_string": one.doc, **value}
