"""Text files that are read line by line: plain or compressed, and errors that say which line it was."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from tensortide.errors import TraceError
from tensortide.gzipped import MAGIC, contents

_SHOWN = 80
_GZIPPED = 31
"""What ``zlib`` calls data with the head and end of gzip."""
_MOST_UNPACKED = 64 << 20
"""Bytes that compressed text may unpack to, each of which can be a line: the largest recorded file has 1 MB."""


class TextFile:
    """The lines of a file, without what ends them; blank lines at its end are dropped."""

    __slots__ = ("lines", "path")

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.lines = [line.rstrip() for line in kept.split("\n")] if (kept := text.rstrip()) else []

    def error(self, index: int, expected: str, column: int | None = None) -> TraceError:
        """``expected`` was expected in the line ``index`` (from 0), and is not what stands there. ``column``: from
        1."""
        return self.wrong(index, f"expected {expected}", column)

    def wrong(self, index: int, reason: str, column: int | None = None) -> TraceError:
        """``reason`` against the line ``index`` (from 0)."""
        where = f"{self.path}, line {index + 1}" + ("" if column is None else f", column {column}")
        found = shown(self.lines[index]) if index < len(self.lines) else "(the file ends here)"
        return TraceError(f"{where}: {reason}: {found}")


class Cursor:
    """Walks over the lines of ``file``; ``at`` is the next one, from 0."""

    def __init__(self, file: TextFile) -> None:
        self.file = file
        self.at = 0

    @property
    def done(self) -> bool:
        """True after the last line."""
        return self.at >= len(self.file.lines)

    @property
    def line(self) -> str:
        """The next line; empty after the last."""
        lines = self.file.lines
        return lines[self.at] if self.at < len(lines) else ""

    def take(
        self, pattern: re.Pattern[str], expected: str, accept: Callable[[re.Match[str]], bool] = bool
    ) -> re.Match[str]:
        """Pass a line of that pattern. Raises TraceError for any other, or one that is not to ``accept``."""
        found = pattern.fullmatch(self.line)
        if found is None or not accept(found):
            raise self.file.error(self.at, expected)
        self.at += 1
        return found

    def skip(self, line: str) -> None:
        """Pass the line ``line``. Raises TraceError for any other."""
        if self.line != line:
            raise self.file.error(self.at, f"a rule of {len(line)} characters" if line[0] == "_" else repr(line))
        self.at += 1


def read_text(path: str | os.PathLike[str]) -> TextFile:
    """The file at ``path``, plain or compressed with gzip, whatever its name.

    Raises:
        TraceError: it cannot be read, its compressed data are damaged or implausible, or it is not UTF-8.
    """
    name = os.fspath(path)
    data = contents(name, TraceError, most_bytes=_MOST_UNPACKED)
    try:
        return TextFile(name, data.decode())
    except UnicodeDecodeError as error:
        start = data[: error.start]
        line = data[start.rfind(b"\n") + 1 :].split(b"\n", 1)[0]
        said = shown(line.decode(errors="backslashreplace"))
        raise TraceError(f"{name}, line {start.count(10) + 1}: not UTF-8: {said}") from None


def head(path: Path, nbytes: int = 1 << 16, *, unpack: bool = True) -> bytes:
    """Read the first bytes of the file at ``path``, unpacked if it is compressed with gzip; none of what is no file.

    Of compressed data that are damaged those before the damage are read, so that a file is known by them.
    """
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            if not unpack or file.peek(2)[:2] != MAGIC:
                return file.read(nbytes)
            return _unpacked(file.read(nbytes), nbytes)
    except (OSError, ValueError):
        return b""


def _unpacked(data: bytes, nbytes: int) -> bytes:
    """The first bytes of what was compressed to ``data`` and more; of damaged data those before the damage."""
    try:
        return zlib.decompressobj(wbits=_GZIPPED).decompress(data, nbytes)
    except zlib.error:
        unpack, found = zlib.decompressobj(wbits=_GZIPPED), bytearray()
        with contextlib.suppress(zlib.error):
            for each in data:
                found += unpack.decompress(bytes([each]))
        return bytes(found[:nbytes])


def find_file(folder: str | os.PathLike[str], names: Sequence[str]) -> Path | None:
    """The first of ``names`` that is in ``folder``, each plain or with ``.gz``; None if none is."""
    for name in names:
        for candidate in (Path(folder) / name, Path(folder) / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def shown(text: str) -> str:
    """``text`` on one line, short enough for a message."""
    whole = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: 2 * _SHOWN].strip())
    return repr(whole if len(whole) <= _SHOWN and len(text) <= 2 * _SHOWN else whole[:_SHOWN].rstrip() + " ...")
