"""Bytes of tiers: memory of this process, and files on a drive that nobody else can see."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from pathlib import Path
from typing import Protocol

from tensortide.errors import RunError
from tensortide.units import format_bytes


class Memory(Protocol):
    """Bytes of a tier, by their offset; the other side is by address."""

    def write(self, offset: int, address: int, nbytes: int) -> None:
        """Copy ``nbytes`` from ``address`` to the tier. Raises OSError."""

    def read(self, offset: int, address: int, nbytes: int) -> None:
        """Copy ``nbytes`` from the tier to ``address``. Raises OSError."""

    def close(self) -> None:
        """Give the bytes back."""


class HostMemory:
    """Memory of this process. Copies let other threads run meanwhile."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = mmap.mmap(-1, max(1, nbytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = ctypes.c_char.from_buffer(self._bytes)
        self._address = ctypes.addressof(self._view)

    def write(self, offset: int, address: int, nbytes: int) -> None:
        """Copy to the tier."""
        ctypes.memmove(self._address + offset, address, nbytes)

    def read(self, offset: int, address: int, nbytes: int) -> None:
        """Copy from the tier."""
        ctypes.memmove(address, self._address + offset, nbytes)

    def close(self) -> None:
        """Give the memory back."""
        del self._view
        self._bytes.close()


class DriveMemory:
    """A file in ``folder`` that nobody else can read, without a name: it goes with this process, whatever ends it.

    Its bytes are reserved first; RunError if that cannot be. It is read and written rather than mapped: an error of the
    drive is an OSError then, and would end the process otherwise.
    """

    def __init__(self, nbytes: int, folder: Path) -> None:
        size = max(1, nbytes)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                self._file = os.dup(file.fileno())
        except OSError as error:
            raise RunError(
                f"{folder} cannot take the {format_bytes(nbytes)} that the plan moves there: "
                f"{error.strerror or error}. Name another folder as offload_dir"
            ) from error

    def write(self, offset: int, address: int, nbytes: int) -> None:
        """Copy to the file."""
        left = _bytes_at(address, nbytes)
        while left:
            done = os.pwrite(self._file, left, offset)
            left, offset = left[done:], offset + done

    def read(self, offset: int, address: int, nbytes: int) -> None:
        """Copy from the file."""
        left = _bytes_at(address, nbytes)
        while left:
            done = os.preadv(self._file, [left], offset)
            if not done:
                raise OSError(0, "the file has lost its end")
            left, offset = left[done:], offset + done

    def close(self) -> None:
        """Close the file, which goes with that."""
        os.close(self._file)


def _bytes_at(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
