"""Tiers that storages move to and back from: host memory beside the budget, and files on a drive."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tensortide.errors import RunError
from tensortide.plans.instance import DEVICE
from tensortide.plans.model import Copy, Drop, Step
from tensortide.units import format_bytes

HOST = "host"
"""The link whose tier is memory of this process; the tiers of all others are files."""
SPILLED = ""
"""Stands for a link where contents are kept that no step of a plan asks for."""
_ALIGNED = 64


class Room:
    """Places in a tier of ``nbytes`` (None: as many as it takes): the first gap that is large enough is taken.

    ``most`` is the end of the last byte that was ever taken.
    """

    def __init__(self, nbytes: int | None = None) -> None:
        self.nbytes, self.most = nbytes, 0
        self._taken: list[tuple[int, int]] = []

    def take(self, nbytes: int) -> int | None:
        """The offset of a new place of ``nbytes``; None if there is no gap for it."""
        size, at = max(_ALIGNED, -(-nbytes // _ALIGNED) * _ALIGNED), 0
        for number, (start, end) in enumerate([*self._taken, (self.nbytes or 1 << 62, 0)]):
            if at + size <= start:
                self._taken.insert(number, (at, at + size))
                self.most = max(self.most, at + size)
                return at
            at = end
        return None

    def leave(self, offset: int) -> None:
        """Give back the place at ``offset``."""
        self._taken = [place for place in self._taken if place[0] != offset]


class Memory(Protocol):
    """Bytes of a tier, by their address."""

    address: int

    def close(self) -> None:
        """Give them back."""


class HostMemory:
    """Memory of this process."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = mmap.mmap(-1, max(1, nbytes))
        self._view = ctypes.c_char.from_buffer(self._bytes)
        self.address = ctypes.addressof(self._view)

    def close(self) -> None:
        """Give the memory back."""
        del self._view
        self._bytes.close()


class DriveMemory(HostMemory):
    """A file in ``folder`` that nobody else can read, without a name: it goes with this process, whatever ends it.

    Its bytes are reserved first. Raises RunError if that cannot be.
    """

    def __init__(self, nbytes: int, folder: Path) -> None:
        size = max(1, nbytes)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                self._bytes = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise RunError(
                f"{folder} cannot take the {format_bytes(nbytes)} that the plan moves there: "
                f"{error.strerror or error}. Name another folder as offload_dir"
            ) from error
        self._view = ctypes.c_char.from_buffer(self._bytes)
        self.address = ctypes.addressof(self._view)


class Kept(NamedTuple):
    """A copy of a storage: the value that it is, when that was last written, and its place on the tier."""

    value: int
    written: int
    offset: int
    nbytes: int


class Tiers:
    """The copies of the engine's storages on the tiers of a plan. Transfers are synchronous."""

    def __init__(self, nbytes: Mapping[str, int], folder: Path) -> None:
        self._rooms = {link: Room(size) for link, size in nbytes.items()}
        self._memory: dict[str, Memory] = {}
        for link, size in nbytes.items():
            self._memory[link] = HostMemory(size) if link == HOST else DriveMemory(size, folder)
        self._kept: dict[int, dict[str, Kept]] = {}
        self._spilled: dict[int, tuple[int, int, bytes]] = {}
        self.moved_bytes = {f"{link} {way}": 0 for link in nbytes for way in ("out", "in")}

    def write(self, storage: int, link: str, value: int, written: int, address: int, nbytes: int) -> bool:
        """Copy the bytes at ``address`` to the tier, in place of an older copy; False if there is no room."""
        kept = self._kept.setdefault(storage, {})
        if link in kept and kept[link].nbytes != nbytes:
            self.drop(storage, link)
        offset = kept[link].offset if link in kept else self._rooms[link].take(nbytes)
        if offset is None:
            return False
        kept[link] = Kept(value, written, offset, nbytes)
        ctypes.memmove(self._memory[link].address + offset, address, nbytes)
        self.moved_bytes[f"{link} out"] += nbytes
        return True

    def holding(self, storage: int, value: int, written: int) -> str | None:
        """A link over which ``value`` can be fetched, as it was last written."""
        if self._spilled.get(storage, ())[:2] == (value, written):
            return SPILLED
        kept = self._kept.get(storage, {})
        return next((link for link, one in kept.items() if (one.value, one.written) == (value, written)), None)

    def value(self, storage: int, link: str) -> Kept | None:
        """The copy on the tier, if there is one."""
        return self._kept.get(storage, {}).get(link)

    def spill(self, storage: int, value: int, written: int, address: int, nbytes: int) -> None:
        """Keep the bytes at ``address`` in host memory, until they are fetched or forgotten."""
        self._spilled[storage] = (value, written, ctypes.string_at(address, nbytes))

    def read(self, storage: int, link: str, address: int, nbytes: int) -> None:
        """Copy the bytes on the tier to ``address``."""
        if link == SPILLED:
            ctypes.memmove(address, self._spilled.pop(storage)[2], nbytes)
            return
        ctypes.memmove(address, self._memory[link].address + self._kept[storage][link].offset, nbytes)
        self.moved_bytes[f"{link} in"] += nbytes

    def drop(self, storage: int, link: str, *, lasting: bool = False) -> None:
        """Forget the copy on the tier, if there is one; ``lasting``: keep its contents beside the tiers."""
        kept = self._kept.get(storage, {}).pop(link, None)
        if kept is not None:
            self._rooms[link].leave(kept.offset)
            if lasting:
                self.spill(storage, kept.value, kept.written, self._memory[link].address + kept.offset, kept.nbytes)

    def forget(self, storage: int) -> None:
        """Forget all copies of a storage."""
        self._spilled.pop(storage, None)
        for link in list(self._kept.get(storage, ())):
            self.drop(storage, link)

    def close(self) -> None:
        """Give the tiers back."""
        self._kept.clear()
        self._spilled.clear()
        for memory in self._memory.values():
            memory.close()


def tier_bytes(steps: Iterable[Step], home: Mapping[int, str], nbytes: Mapping[int, int]) -> dict[str, int]:
    """The bytes that each tier of a plan needs, places and all."""
    rooms: dict[str, Room] = {}
    places: dict[tuple[int, str], int] = {}

    def put(storage: int, link: str) -> None:
        room = rooms.setdefault(link, Room())
        if (storage, link) not in places and (offset := room.take(nbytes[storage])) is not None:
            places[storage, link] = offset

    for storage, link in home.items():
        if link != DEVICE:
            put(storage, link)
    for step in steps:
        if isinstance(step, Copy):
            put(step.storage, step.link)
        elif isinstance(step, Drop):
            rooms[step.link].leave(places.pop((step.storage, step.link)))
    return {link: room.most for link, room in rooms.items()}
