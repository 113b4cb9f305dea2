"""Tables of a flat buffer: offsets followed within the file's bytes, nothing copied but what is asked for.

The runtime of FlatBuffers for Python checks no offset and comes without the schema of TensorFlow Lite; a table is a
vtable of 16-bit offsets, so this reader is shorter than the classes that it would need.
Format: https://flatbuffers.dev/internals
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tensortide.errors import TraceError

LONGEST = 1000
"""Characters of a name that are read."""


class FlatBufferError(TraceError):
    """A flat buffer is damaged; the message names the file and the offset."""


class Reader:
    """The bytes of a file, and numbers in them. Raises FlatBufferError for what lies outside."""

    __slots__ = ("data", "path")

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data

    def fail(self, text: str) -> FlatBufferError:
        """Return the error to raise for something wrong in this file."""
        return FlatBufferError(f"{self.path}: {text}")

    def number(self, form: str, at: int) -> int:
        """Return the number of a ``struct`` format at ``at``."""
        try:
            found: int = struct.unpack_from(f"<{form}", self.data, at)[0] if at >= 0 else self._outside(at)
        except struct.error:
            raise self.fail(f"it is cut or damaged: nothing at byte {at} of {len(self.data)}") from None
        return found

    def _outside(self, at: int) -> int:
        raise self.fail(f"it is damaged: an offset leads to byte {at}")

    def follow(self, at: int) -> int:
        """Return the place that the offset at ``at`` leads to."""
        return at + self.number("I", at)

    def root(self) -> Table:
        """Return the table that the file begins with."""
        return Table(self, self.follow(0))


class Table(NamedTuple):
    """A table at a place of a file. Fields are numbered as in the schema."""

    file: Reader
    at: int

    def _field(self, number: int) -> int:
        """Return the place of a field, 0 where it is not there."""
        vtable = self.at - self.file.number("i", self.at)
        slot = 4 + 2 * number
        if slot + 2 > self.file.number("H", vtable):
            return 0
        offset = self.file.number("H", vtable + slot)
        return self.at + offset if offset else 0

    def has(self, number: int) -> bool:
        """Tell whether a field is there."""
        return self._field(number) != 0

    def number(self, number: int, form: str, default: int = 0) -> int:
        """Return a field that is a number."""
        at = self._field(number)
        return self.file.number(form, at) if at else default

    def table(self, number: int) -> Table | None:
        """Return a field that is a table."""
        at = self._field(number)
        return Table(self.file, self.file.follow(at)) if at else None

    def text(self, number: int) -> str:
        """Return a field that is a text, at most so long; bytes that are none are shown as such."""
        start, count = self._vector(number, 1)
        return self.file.data[start : start + min(count, LONGEST)].decode(errors="replace")

    def span(self, number: int) -> tuple[int, int]:
        """Return the place and the length of a vector of bytes."""
        return self._vector(number, 1)

    def numbers(self, number: int, form: str, most: int) -> tuple[int, ...]:
        """Return a field that is a vector of numbers, at most so many."""
        start, count = self._vector(number, struct.calcsize(form))
        if count > most:
            raise self.file.fail(f"it is damaged: a list of {count} numbers at byte {start}")
        return struct.unpack_from(f"<{count}{form}", self.file.data, start) if count else ()

    def tables(self, number: int) -> Iterator[Table]:
        """Return the tables of a vector."""
        start, count = self._vector(number, 4)
        for i in range(count):
            yield Table(self.file, self.file.follow(start + 4 * i))

    def _vector(self, number: int, width: int) -> tuple[int, int]:
        at = self._field(number)
        if not at:
            return 0, 0
        start = self.file.follow(at)
        count = self.file.number("I", start)
        if start + 4 + count * width > len(self.file.data):
            raise self.file.fail(f"it is cut or damaged: a list of {count} at byte {start} of {len(self.file.data)}")
        return start + 4, count
