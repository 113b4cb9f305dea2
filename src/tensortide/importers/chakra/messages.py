"""Messages of Chakra, decoded and encoded by their field numbers. What a file has in canonical order comes back byte
by byte."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from tensortide.importers.chakra.wire import (
    VARINT,
    Raw,
    WireError,
    field,
    fields,
    fixed,
    read_varint,
    signed,
    unzigzag,
    varint,
    zigzag,
)

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


class _Kind(NamedTuple):
    """A type of values: its field number (its list has the next one), from the wire and to the wire."""

    number: int
    read: Callable[[Raw], Scalar]
    write: Callable[[int, Scalar], bytes]
    packed: str = ""  # the layout of an element in a packed list; empty for varints


def _integers(number: int, decode: Callable[[int], int], encode: Callable[[int], int] = int) -> _Kind:
    return _Kind(number, lambda raw: decode(_number(raw)), lambda at, value: field(at, encode(int(value))))


def _fixed(number: int, layout: str) -> _Kind:
    def read(raw: Raw) -> Scalar:
        found: Scalar = struct.unpack(layout, _data(raw))[0]
        return found

    number_of = float if layout[1] in "df" else int
    return _Kind(number, read, lambda at, value: fixed(at, layout, number_of(value)), layout)


def _number(raw: Raw) -> int:
    if not isinstance(raw, int):
        raise WireError("bytes where a number belongs")
    return raw


def _data(raw: Raw) -> bytes:
    if not isinstance(raw, bytes):
        raise WireError("a number where bytes belong")
    return raw


def _text(raw: Raw) -> str:
    return _data(raw).decode()


_KINDS: dict[str, _Kind] = {
    "double": _fixed(3, "<d"),
    "float": _fixed(5, "<f"),
    "int32": _integers(7, signed),
    "int64": _integers(9, signed),
    "uint32": _integers(11, int),
    "uint64": _integers(13, int),
    "sint32": _integers(15, unzigzag, zigzag),
    "sint64": _integers(17, unzigzag, zigzag),
    "fixed32": _fixed(19, "<I"),
    "fixed64": _fixed(21, "<Q"),
    "sfixed32": _fixed(23, "<i"),
    "sfixed64": _fixed(25, "<q"),
    "bool": _Kind(27, lambda raw: bool(_number(raw)), lambda at, value: field(at, int(bool(value)))),
    "string": _Kind(29, _text, lambda at, value: field(at, str(value).encode())),
    "bytes": _Kind(31, _data, lambda at, value: field(at, bytes(value))),  # type: ignore[arg-type]
}
_BY_NUMBER = {kind.number: (name, kind) for name, kind in _KINDS.items()}


# -- reading ----------------------------------------------------------------------------------------


def decode_metadata(data: bytes) -> tuple[str, tuple[Attribute, ...]]:
    """The version and the attributes of a GlobalMetadata."""
    version, attributes = "", list[Attribute]()
    for number, _, raw in fields(data):
        if number == 1:
            version = _text(raw)
        elif number == 2:
            attributes.append(_attribute(_data(raw)))
    return version, tuple(attributes)


def decode_node(data: bytes) -> Node:
    """A Node."""
    numbers, texts, sides = dict[int, int](), dict[int, str](), dict[int, Values]()
    after: dict[int, list[int]] = {4: [], 5: []}
    attributes: list[Attribute] = []
    for number, kind, raw in fields(data):
        if number in (1, 3, 6, 7):
            numbers[number] = _number(raw)
        elif number == 2:
            texts[number] = _text(raw)
        elif number in after:
            after[number] += [_number(raw)] if kind == VARINT else _varints(_data(raw))
        elif number in (8, 9):
            sides[number] = Values(*_texts(_data(raw)))
        elif number == 10:
            attributes.append(_attribute(_data(raw)))
    kinds = numbers.get(3, 0)
    if kinds not in {kind.value for kind in NodeType}:
        raise WireError(f"node {numbers.get(1, 0)} has the unknown type {kinds}")
    return Node(
        numbers.get(1, 0),
        texts.get(2, ""),
        NodeType(kinds),
        tuple(after[4]),
        tuple(after[5]),
        numbers.get(6, 0),
        numbers.get(7, 0),
        sides.get(8),
        sides.get(9),
        tuple(attributes),
    )


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield value


def _texts(data: bytes) -> tuple[str, str, str]:
    found = {number: _text(raw) for number, _, raw in fields(data)}
    return found.get(1, ""), found.get(2, ""), found.get(3, "")


def _attribute(data: bytes) -> Attribute:
    name = doc = ""
    kind = ""
    value: Scalar | tuple[Scalar, ...] | None = None
    for number, _, raw in fields(data):
        if number == 1:
            name = _text(raw)
        elif number == 2:
            doc = _text(raw)
        elif number in _BY_NUMBER:
            kind, value = _BY_NUMBER[number][0], _BY_NUMBER[number][1].read(raw)
        elif number - 1 in _BY_NUMBER:
            kind, value = _BY_NUMBER[number - 1][0], tuple(_items(_BY_NUMBER[number - 1][1], _data(raw)))
    return Attribute(name, kind, value, doc)


def _items(kind: _Kind, data: bytes) -> Iterator[Scalar]:
    for number, wire, raw in fields(data):
        if number != 1:
            continue
        if isinstance(raw, int) or kind.number >= _KINDS["string"].number or wire != 2:
            yield kind.read(raw)
        elif kind.packed:
            size = struct.calcsize(kind.packed)
            yield from (kind.read(raw[at : at + size]) for at in range(0, len(raw), size))
        else:
            yield from map(kind.read, _varints(raw))


# -- writing ----------------------------------------------------------------------------------------


def encode_metadata(trace: Chakra) -> bytes:
    """A GlobalMetadata."""
    version = field(1, trace.version.encode()) if trace.version else b""
    return version + b"".join(field(2, _encoded(one)) for one in trace.attributes)


def encode_node(node: Node) -> bytes:
    """A Node; fields of no value are left out."""
    parts = [field(1, node.id) if node.id else b"", field(2, node.name.encode()) if node.name else b""]
    parts.append(field(3, int(node.type)) if node.type else b"")
    parts += [field(number, b"".join(map(varint, ids))) for number, ids in ((4, node.control), (5, node.data)) if ids]
    parts += [field(number, us) for number, us in ((6, node.start_us), (7, node.duration_us)) if us]
    parts += [field(number, _side(side)) for number, side in ((8, node.inputs), (9, node.outputs)) if side is not None]
    return b"".join(parts) + b"".join(field(10, _encoded(one)) for one in node.attributes)


def _side(side: Values) -> bytes:
    texts = ((1, side.values), (2, side.shapes), (3, side.types))
    return b"".join(field(number, text.encode()) for number, text in texts if text)


def _encoded(one: Attribute) -> bytes:
    head = field(1, one.name.encode()) + (field(2, one.doc.encode()) if one.doc else b"")
    if one.value is None:
        return head
    kind = _KINDS[one.kind]
    if not isinstance(one.value, tuple):
        return head + kind.write(kind.number, one.value)
    if kind.number >= _KINDS["string"].number:
        return head + field(kind.number + 1, b"".join(kind.write(1, value) for value in one.value))
    packed = b"".join(kind.write(1, value)[1:] for value in one.value)  # without the tag, of one byte
    return head + field(kind.number + 1, field(1, packed) if packed else b"")
