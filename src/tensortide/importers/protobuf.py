"""Protocol buffers, read and written by tables of messages: no compiler and no library is needed for them.

A table has a line for each message: ``Name: kind field=number, ...``. ``*`` marks repeated fields, ``|`` those of which
one is there (a oneof); a kind in capitals is another message of the table. Fields that are not in the table are
skipped. A map is what it is on the wire: repeated entries of a key and a value.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

VARINT, FIXED64, BYTES, GROUP, END, FIXED32 = range(6)

LAST = (1 << 29) - 1
"""The largest number of a field."""
DEEPEST = 100
"""Messages inside one another, at most."""
MOST = 2_000_000
"""Messages in a whole one, at most: a damaged or hostile file of few bytes can say that it has any number."""
_TOO_DEEP = f"more than {DEEPEST} messages inside one another"

Raw: TypeAlias = int | bytes
"""The value of a field: a number of a varint, the bytes of anything else."""


class WireError(ValueError):
    """Bytes that are no message."""


# --- the wire ------------------------------------------------------------------------------------------


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint at ``at``: the number, and the place behind it."""
    if at < len(data) and data[at] < 0x80:  # most are one byte
        return data[at], at + 1
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("a number is cut off" if at >= len(data) else "a number has more than 64 bits")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7


def varint(value: int) -> bytes:
    """Write a number as a varint; a negative one as its 64 bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def fields(data: bytes) -> Iterator[tuple[int, int, Raw]]:
    """Yield number, wire type and value of each field of a message, in the order in which they stand."""
    at = 0
    while at < len(data):
        tag, at = _tag(data, at)
        value, at = _value(data, tag, at)
        yield tag >> 3, tag & 7, value


def _tag(data: bytes, at: int) -> tuple[int, int]:
    """Read what stands before a value: the number of the field and the wire type, in five bytes at most."""
    tag, behind = read_varint(data, at)
    if behind > at + 5:
        raise WireError("a field's number has more than 32 bits")
    return tag, behind


def _value(data: bytes, tag: int, at: int) -> tuple[Raw, int]:
    """Read the value of a field: what it is, and the place behind it. That of a group, an old form, is empty."""
    number, wire = tag >> 3, tag & 7
    if not 0 < number <= LAST:
        raise WireError(f"there is no field {number}")
    if wire == VARINT:
        return read_varint(data, at)
    if wire == GROUP:
        return b"", _behind_group(data, tag, at)
    if wire == BYTES:
        size, at = read_varint(data, at)
    elif wire in (FIXED32, FIXED64):
        size = 4 if wire == FIXED32 else 8
    else:
        raise WireError(f"field {number} has the unknown wire type {wire}")
    if at + size > len(data):
        raise WireError(f"field {number} is cut off")
    return data[at : at + size], at + size


def _behind_group(data: bytes, tag: int, at: int) -> int:
    """Return the place behind a group, which begins before ``at``; groups in it are skipped with it."""
    opened = [tag]
    while opened:
        tag, at = _tag(data, at)
        if tag & 7 == GROUP:
            opened.append(tag)
        elif tag & 7 != END:
            _, at = _value(data, tag, at)
        elif tag >> 3 != opened.pop() >> 3:
            raise WireError(f"field {tag >> 3} ends a group that is not its own")
        if len(opened) > DEEPEST:
            raise WireError(_TOO_DEEP)
    return at


# --- kinds of values -----------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of values: its wire type, the way from there and back, and the value of a field that is not there."""

    wire: int
    read: Callable[[Any], Any]
    write: Callable[[Any], Raw]
    default: Any = 0


def _signed(bits: int) -> Callable[[int], int]:
    return lambda raw: (raw + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _fixed(layout: str, default: float = 0) -> Kind:
    wire = FIXED32 if struct.calcsize(layout) == 4 else FIXED64
    return Kind(wire, lambda raw: struct.unpack(layout, raw)[0], lambda value: struct.pack(layout, value), default)


_ZIGZAG = Kind(VARINT, lambda raw: raw >> 1 ^ -(raw & 1), lambda value: value << 1 if value >= 0 else (-value << 1) - 1)

KINDS: Mapping[str, Kind] = {
    "double": _fixed("<d", 0.0),
    "float": _fixed("<f", 0.0),
    "int32": Kind(VARINT, _signed(32), int),
    "int64": Kind(VARINT, _signed(64), int),
    "uint32": Kind(VARINT, lambda raw: raw % (1 << 32), int),
    "uint64": Kind(VARINT, int, int),
    "sint32": _ZIGZAG,
    "sint64": _ZIGZAG,
    "fixed32": _fixed("<I"),
    "fixed64": _fixed("<Q"),
    "sfixed32": _fixed("<i"),
    "sfixed64": _fixed("<q"),
    "bool": Kind(VARINT, bool, int, False),
    "string": Kind(BYTES, bytes.decode, str.encode, ""),
    "bytes": Kind(BYTES, bytes, bytes, b""),
}


def _packed(kind: Kind, data: bytes) -> list[Any]:
    """Read the elements of a repeated field that stand together."""
    if kind.wire != VARINT:
        size = 4 if kind.wire == FIXED32 else 8
        if len(data) % size:
            raise WireError("a list of numbers is cut off")
        return [kind.read(data[at : at + size]) for at in range(0, len(data), size)]
    if data.isascii():  # each is one byte
        return [kind.read(one) for one in data]
    at, found = 0, []
    while at < len(data):
        value, at = read_varint(data, at)
        found.append(kind.read(value))
    return found


# --- messages ------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A row of a table: ``kind`` is None where ``message`` names another message."""

    number: int
    name: str
    kind: Kind | None
    message: str
    repeated: bool
    oneof: bool


class Reader(NamedTuple):
    """A way to read a field: by ``read``, or into a message of the type of ``empty``. ``packed``: many at once."""

    name: str
    read: Callable[[Any], Any]
    empty: Message | None
    repeated: bool
    oneof: bool
    packed: bool = False


class Message:
    """A message with its fields as attributes; one that is not there is its default, an attribute of the class.
    ``which`` names the field of the oneof that is there. ``"field" in message`` tells whether a field is there."""

    which = ""
    readers: ClassVar[dict[int, Reader]]
    """By number and wire type, as they stand before a value. A field of another wire type is skipped as unknown."""

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no field {name}")

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the fields that are there, with their values."""
        return [(name, value) for name, value in self.__dict__.items() if name != "which"]

    def merge(self, data: bytes, left: Iterator[int], depth: int = 0) -> None:
        """Read a message into this one; ``left`` has an item for each that may still come. Raises WireError."""
        if depth > DEEPEST:
            raise WireError(_TOO_DEEP)
        if next(left, None) is None:
            raise WireError(f"more than {MOST} messages")
        readers, at, end = self.readers, 0, len(data)
        while at < end:
            tag, at = (data[at], at + 1) if data[at] < 0x80 else _tag(data, at)
            reader = readers.get(tag)
            if reader and tag & 7 == BYTES and at < end and data[at] < 0x80 and (behind := at + 1 + data[at]) <= end:
                raw: Any = data[at + 1 : behind]  # as most are: their size is one byte
                at = behind
            else:
                raw, at = _value(data, tag, at)
            if reader is None:
                continue
            name, read, empty, repeated, oneof, packed = reader
            if oneof and self.which != name:
                if self.which:
                    delattr(self, self.which)
                self.which = name
            before = getattr(self, name)
            if empty is None:
                value = read(raw)
            else:
                value = type(empty)() if repeated or before is empty else before
                value.merge(raw, left, depth + 1)
            if repeated:
                value = value if packed else [value]
                if before:
                    before.extend(value)
                    continue
            setattr(self, name, value)


class Schema:
    """The messages of a table: ``fields`` are theirs by the order of their numbers, ``types`` their classes."""

    def __init__(self, table: str) -> None:
        self.fields: dict[str, list[Field]] = {}
        for line in table.replace(",\n    ", ", ").strip().splitlines():
            name, _, rest = line.partition(": ")
            self.fields[name] = sorted(map(_field, rest.split(", ")))
        self.types: dict[str, type[Message]] = {name: type(name, (Message,), {"readers": {}}) for name in self.fields}
        for name, made in self.types.items():
            for field in self.fields[name]:
                empty = self.types[field.message]() if field.kind is None else None
                setattr(made, field.name, () if field.repeated else empty if field.kind is None else field.kind.default)
                made.readers.update(_readers(field, empty))

    def read(self, name: str, data: bytes) -> Message:
        """Read a message. Raises WireError."""
        made = self.types[name]()
        try:
            made.merge(data, iter(range(MOST)))
        except UnicodeDecodeError as error:
            raise WireError(f"a text is none: {error}") from None
        return made

    def write(self, name: str, values: Mapping[str, Any]) -> bytes:
        """Write a message of the ``values`` of its fields, those of other messages as mappings: in the order of the
        numbers, defaults left out but in a oneof."""
        parts: list[bytes] = []
        for field in self.fields[name]:
            value, kind = values.get(field.name), field.kind
            items = () if value is None else value if field.repeated else (value,)
            if kind is None:
                parts += (tagged(field.number, BYTES, self.write(field.message, one)) for one in items)
                continue
            raw = [kind.write(one) for one in items]
            if field.repeated and raw and kind.wire != BYTES:
                parts.append(tagged(field.number, BYTES, b"".join(map(_bare, raw))))
            elif field.repeated or field.oneof or raw != [kind.write(kind.default)]:
                parts += (tagged(field.number, kind.wire, one) for one in raw)
        return b"".join(parts)


def _field(text: str) -> Field:
    kind, name, number = text.replace("=", " ").split()
    base = kind.rstrip("*|")
    return Field(int(number), name, KINDS.get(base), base, kind.endswith("*"), kind.endswith("|"))


def _readers(field: Field, empty: Message | None) -> Iterator[tuple[int, Reader]]:
    kind = field.kind
    if kind is not None and field.repeated and kind.wire != BYTES:
        read = functools.partial(_packed, kind)
        yield field.number << 3 | BYTES, Reader(field.name, read, None, True, False, packed=True)
    wire, one = (BYTES, bytes) if kind is None else (kind.wire, kind.read)
    yield field.number << 3 | wire, Reader(field.name, one, empty, field.repeated, field.oneof)


def _bare(raw: Raw) -> bytes:
    return varint(raw) if isinstance(raw, int) else raw


def tagged(number: int, wire: int, raw: Raw) -> bytes:
    """Write a field."""
    size = varint(len(raw)) if wire == BYTES and isinstance(raw, bytes) else b""
    return varint(number << 3 | wire) + size + _bare(raw)
