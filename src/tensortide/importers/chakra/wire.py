"""The wire format of protocol buffers, as far as Chakra needs it: fields of a message, and messages with a length."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Raw: TypeAlias = int | bytes
"""The value of a field: a number of a varint, the bytes of anything else."""


class WireError(ValueError):
    """Bytes that are no message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint at ``at``: the number, and the place behind it."""
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
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise WireError(f"field {number} has the unknown wire type {kind}")
        if at + size > len(data):
            raise WireError(f"field {number} is cut off")
        yield number, kind, data[at : at + size]
        at += size


def field(number: int, value: Raw) -> bytes:
    """Write a field: a number as a varint, bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def fixed(number: int, layout: str, value: float) -> bytes:
    """Write a field of 4 or 8 bytes in the ``layout`` of ``struct``."""
    data = struct.pack(layout, value)
    return varint(number << 3 | (FIXED32 if len(data) == 4 else FIXED64)) + data


def signed(value: int) -> int:
    """The two's complement of 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def unzigzag(value: int) -> int:
    """The number of a ``sint``."""
    return value >> 1 ^ -(value & 1)


def zigzag(value: int) -> int:
    """The varint of a ``sint``."""
    return value << 1 if value >= 0 else (-value << 1) - 1
