"""Files compressed with gzip, whatever their names: unpacked piece by piece, and only as far as is plausible.

A few megabytes can unpack to gigabytes of blanks. No trace, log or graph does: the most regular traces that we have
made, with one long call stack at every op, unpack to 124 times their size, and all recorded ones to less than 30 times.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tensortide.errors import TensortideError

MAGIC = b"\x1f\x8b"
"""The first bytes of what gzip has compressed."""
MOST_RATIO = 200
"""A file may unpack to so many times its size, and to ``SMALL_BYTES`` in any case."""
SMALL_BYTES = 16 << 20
MOST_BYTES = 1 << 32
"""A file that is unpacked in memory, as a whole, may unpack to so much."""
_PIECE = 1 << 18


class GzipError(Exception):
    """Compressed data are damaged, or unpack to more than is plausible. The message follows the name of the file: ``is
    damaged (gzip): ...``."""


@contextlib.contextmanager
def open_gzip(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Open the file at ``path``, plain or compressed, as a stream of its unpacked bytes.

    Raises OSError if it cannot be opened; reading raises GzipError.
    """
    with Path(path).open("rb") as file:
        yield io.BufferedReader(_Unpacked(file), _PIECE) if file.peek(2)[:2] == MAGIC else file


def read_gzip(path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of the file at ``path``, unpacked if it is compressed, to ``most_bytes`` at most.

    Raises OSError if it cannot be read, GzipError if it is damaged or unpacks to more.
    """
    with Path(path).open("rb") as file:
        return _unpacked(file, most_bytes) if file.peek(2)[:2] == MAGIC else file.read()


def contents(
    path: str | os.PathLike[str], kind: type[TensortideError], *, unpack: bool = True, most_bytes: int = MOST_BYTES
) -> bytes:
    """The bytes of the file at ``path``, as ``read_gzip`` has them. Raises an error of ``kind`` where it has none."""
    try:
        return read_gzip(path, most_bytes=most_bytes) if unpack else Path(path).read_bytes()
    except GzipError as error:
        raise kind(f"{path} {error}") from error
    except (OSError, ValueError) as error:
        raise kind(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def unpack_gzip(data: bytes) -> bytes:
    """``data``, unpacked if they are compressed. Raises GzipError."""
    return _unpacked(io.BytesIO(data), MOST_BYTES) if data.startswith(MAGIC) else data


def _unpacked(packed: BinaryIO, most_bytes: int) -> bytes:
    stream, found = _Unpacked(packed), bytearray()
    while piece := stream.read(_PIECE):
        found += piece
        if len(found) > most_bytes:
            raise _too_large(f"{most_bytes >> 20:,} MiB")
    return bytes(found)


def _too_large(most: str) -> GzipError:
    return GzipError(f"unpacks to more than {most}: if that is intended, decompress it with gunzip first")


class _Counted:
    """``source``, with the bytes that have been taken from it."""

    def __init__(self, source: BinaryIO) -> None:
        self.source, self.taken = source, 0

    def read(self, nbytes: int = -1) -> bytes:
        data = self.source.read(nbytes)
        self.taken += len(data)
        return data


class _Unpacked(io.RawIOBase):
    """The bytes that ``packed`` unpacks to."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = _Counted(packed)
        self._stream = gzip.GzipFile(fileobj=self._packed)  # type: ignore[call-overload] # it reads, and no more
        self._found = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise GzipError(f"is damaged (gzip): {error}") from error
        self._found += len(data)
        if self._found > max(SMALL_BYTES, MOST_RATIO * self._packed.taken):
            raise _too_large(f"{MOST_RATIO} times its size")
        buffer[: len(data)] = data
        return len(data)
