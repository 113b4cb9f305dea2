"""A DTR log line by line: what a line may say, and which line it was."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, BinaryIO, TypeAlias

import msgspec

from tensortide.errors import LogError
from tensortide.gzipped import GzipError, open_gzip

START, BACKWARD = "START", "BACKWARD"
"""The annotations that mean something."""
_LONGEST = 1 << 24
_MOST_BLANK = 1_000_000
_SHOWN = 80
_POSITION = re.compile(r"^(?:JSON is malformed: )?(.*) \(byte (\d+)\)$")
_FIELD = re.compile(r"^(.*) - at `\$\.(.*)`$")

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Base(msgspec.Struct, tag_field="INSTRUCTION", rename="upper", forbid_unknown_fields=True, gc=False):
    """One line. Numbers may be JSON integers or integers in strings."""

    @classmethod
    def tag(cls) -> str:
        """Return the name of the line in the log."""
        return str(cls.__struct_config__.tag)


class Annotate(Base, tag="ANNOTATE"):
    """A remark; ``START`` and ``BACKWARD`` mean something."""

    annotation: str


class Constant(Base, tag="CONSTANT"):
    """A new tensor that cannot be recomputed."""

    name: str


class Memory(Base, tag="MEMORY"):
    """Bytes of a constant or result."""

    name: str
    memory: Natural


class Call(Base, tag="CALL"):
    """An op and its duration in nanoseconds; ``Memory`` and ``Alias`` of each result follow."""

    name: str
    args: list[str]
    result: list[str]
    time: Natural


class Alias(Base, tag="ALIAS"):
    """-1: the result has a storage of its own; else it lies in that of this argument."""

    name: str
    alias: Annotated[int, msgspec.Meta(ge=-1)]


class Mutate(Base, tag="MUTATE"):
    """An op that writes some of its arguments in place, and its duration in nanoseconds."""

    name: str
    args: list[str]
    mutate: list[Natural]
    time: Natural


class Copy(Base, tag="COPY"):
    """A new name for a tensor."""

    dst: str
    src: str


class CopyFrom(Base, tag="COPY_FROM"):
    """A known name becomes one of another tensor."""

    dst: str
    src: str


class Release(Base, tag="RELEASE"):
    """One reference is dropped."""

    name: str


Line: TypeAlias = Annotate | Constant | Memory | Call | Alias | Mutate | Copy | CopyFrom | Release

_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line, strict=False).decode


class Lines:
    """The lines of ``file``, one after the other; ``number`` is the last one read, from 1."""

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self.file = file
        self.number = 0
        self._readline = stream.readline
        self._text = b""
        self._blank = 0  # lines in a row

    def next(self) -> Line | None:
        """The next line that is not blank, None after the last. Raises LogError."""
        while self._advance():
            if self._text:
                try:
                    return _decode(self._text)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise self._malformed(error) from error
        return None

    def memory(self, name: str) -> int:
        """The bytes of ``name``, which the next line must have. Raises LogError."""
        line = self.next()
        if type(line) is not Memory or line.name != name:
            raise self._expected("MEMORY", name, line)
        return line.memory

    def alias(self, name: str, count: int) -> int:
        """Return which of ``count`` arguments ``name`` aliases, as the next line must say. Raises LogError."""
        line = self.next()
        if type(line) is not Alias or line.name != name:
            raise self._expected("ALIAS", name, line)
        if line.alias >= count:
            raise self.error(f"{name!r} lies in ARGS[{line.alias}], and there are {count} ARGS")
        return line.alias

    def skip_to_start(self) -> bool:
        """Advance to the START annotation, on this line or a later one; return False if there is none."""
        while True:
            if b"START" in self._text:
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    if _decode(self._text) == Annotate(START):
                        return True
            try:
                if not self._advance():
                    return False
            except LogError:
                return False

    def error(self, reason: str, column: int | None = None) -> LogError:
        """``reason`` against this line."""
        where = f"{self.file}, line {self.number}" + ("" if column is None else f", column {column}")
        return LogError(f"{where}: {reason}" + (f": {_shown(self._text)}" if self._text else ""))

    def _advance(self) -> bool:
        try:
            raw = self._readline(_LONGEST)
        except (OSError, GzipError) as error:
            self._text = b""
            reason = "the compressed file" if isinstance(error, GzipError) else "cannot be read:"
            raise self.error(f"after this line {reason} {error}") from error
        self.number += bool(raw)
        self._text = raw.rstrip()
        self._blank = 0 if self._text else self._blank + 1
        if self._blank > _MOST_BLANK:
            raise self.error(f"more than {_MOST_BLANK:,} blank lines: this is no log")
        if len(raw) == _LONGEST:
            raise self.error(f"longer than {_LONGEST:,} bytes")
        return bool(raw)

    def _expected(self, kind: str, name: str, line: Line | None) -> LogError:
        found = "the log ends" if line is None else f"there is {line.tag()}"
        if isinstance(line, Memory | Alias):
            found += f" of {line.name!r}"
        return self.error(f"expected {kind} of {name!r}, {found}")

    def _malformed(self, error: Exception) -> LogError:
        if isinstance(error, RecursionError):
            return self.error("too deeply nested")
        if isinstance(error, msgspec.ValidationError):
            found = _FIELD.match(str(error))
            return self.error((f"{found[2]}: {found[1]}" if found else str(error)).replace("`", ""))
        try:
            self._text.decode()
        except UnicodeDecodeError as wrong:
            return self.error("not UTF-8", column=self._column(wrong.start))
        position = _POSITION.match(str(error))
        if position is None:
            return self.error("not JSON: the line ends too early", column=self._column(len(self._text)))
        return self.error(f"not JSON: {position[1]}", column=self._column(int(position[2])))

    def _column(self, byte: int) -> int:
        return len(self._text[:byte].decode(errors="replace")) + 1


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Lines]:
    """The lines of a file, plain or compressed with gzip. Raises LogError if it cannot be opened."""
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(open_gzip(path))
        except (OSError, ValueError) as error:
            raise LogError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        yield Lines(stream, os.fspath(path))


def _shown(text: bytes) -> str:
    whole = text[: 4 * _SHOWN].decode(errors="backslashreplace")
    whole = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole)
    return whole if len(whole) <= _SHOWN and len(text) <= 4 * _SHOWN else whole[:_SHOWN].rstrip() + " ..."
