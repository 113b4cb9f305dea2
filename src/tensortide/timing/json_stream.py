"""Large JSON files read as a stream: the members of one object, and the items of one of its arrays, one at a time."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TextIO

from tensortide.errors import TimesError
from tensortide.file_faults import reading
from tensortide.gzipped import GzipError, open_gzip

CHUNK = 1 << 18
"""Characters that are read at once, at least."""
LARGEST = 1 << 26
"""Characters of the largest single value: an event, a node, or a member that is not the streamed array."""

_SPACE = re.compile(r"[ \t\r\n]*")
_CUT = 8
"""An error so close to the end of what was read may be that of a value that goes on."""


class JsonError(ValueError):
    """A text that is no JSON object; the message says where."""


def members(path: str | os.PathLike[str], array: str, what: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of the object in a file, plain or gzipped; of its ``array`` each item under that name.

    The memory that this takes is that of the largest value. Numbers with a decimal point are Decimals: exact.

    Raises TimesError if the file cannot be read or is damaged; ``what`` says what it should be.
    """
    try:
        with reading(path, TimesError), open_gzip(path) as file:
            cursor = _Cursor(io.TextIOWrapper(file, "utf-8-sig"))
            yield from _object(cursor, array)
            cursor.end()
    except GzipError as error:
        raise TimesError(f"{path} {error}") from error
    except OSError as error:
        raise TimesError(f"cannot read {path}: {error.strerror or error}") from error
    except (JsonError, UnicodeDecodeError) as error:
        raise TimesError(f"{path} is no {what}: {error}") from error


def _object(cursor: _Cursor, array: str) -> Iterator[tuple[str, Any]]:
    cursor.take("{")
    if cursor.peek() == "}":
        cursor.take("}")
        return
    while True:
        key = cursor.value()
        cursor.take(":")
        if key == array and cursor.peek() == "[":
            yield from ((array, item) for item in _items(cursor))
        else:
            yield key, cursor.value()
        if cursor.take(",}") == "}":
            return


def _items(cursor: _Cursor) -> Iterator[Any]:
    cursor.take("[")
    if cursor.peek() == "]":
        cursor.take("]")
        return
    while True:
        yield cursor.value()
        if cursor.take(",]") == "]":
            return


class _Cursor:
    """A place in a text of which only the part around it is in memory."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._before = 0  # characters that are dropped already
        self._ended = False
        self._decode = json.JSONDecoder(parse_float=Decimal).raw_decode

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None, "matches no characters too"
            self._at = found.end()
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, expected: str) -> str:
        """Pass the next character, which is one of ``expected``."""
        found = self.peek()
        if not found or found not in expected:
            wanted = " or ".join(map(repr, expected))
            raise JsonError(f"expected {wanted} at {self._place(self._at)}, not {found!r}")
        self._at += 1
        return found

    def end(self) -> None:
        """Raise JsonError if more follows than spaces."""
        if found := self.peek():
            raise JsonError(f"{found!r} follows the object at {self._place(self._at)}: is it several files in one?")

    def value(self) -> Any:
        """Pass and return the next value."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text) or not self._more():  # a number may go on
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _CUT
                if not cut or len(self._text) - self._at > LARGEST or not self._more():
                    raise JsonError(f"{error.msg} at {self._place(error.pos)}") from error

    def _place(self, at: int) -> str:
        return (
            f"character {self._before + at}{', where the file ends' if self._ended and at >= len(self._text) else ''}"
        )

    def _more(self) -> bool:
        """Read on, at least as much as is pending, and drop what is behind. False at the end of the file."""
        if self._ended:
            return False
        rest = self._text[self._at :]
        read = self._file.read(max(CHUNK, len(rest)))
        self._ended = not read
        if self._ended:
            return False
        self._before += self._at
        self._text, self._at = rest + read, 0
        return True
