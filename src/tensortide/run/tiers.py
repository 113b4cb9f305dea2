"""Tiers that storages move to and back from: host memory beside the budget, and files on a drive."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tensortide.plans.instance import DEVICE
from tensortide.plans.model import Copy, Drop, Step
from tensortide.run.block import Storage
from tensortide.run.movers import Mover
from tensortide.run.tier_memory import Memory
from tensortide.run.transfers import Transfer

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

    def take_at(self, offset: int, nbytes: int) -> bool:
        """Take the place at ``offset``; False if another one overlaps it."""
        end = offset + max(_ALIGNED, -(-nbytes // _ALIGNED) * _ALIGNED)
        if any(start < end and offset < after for start, after in self._taken):
            return False
        self._taken = sorted([*self._taken, (offset, end)])
        return True

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


class Kept(NamedTuple):
    """A copy of a storage: the value that it is, when that was last written, and its place on the tier. ``written_by``
    is the transfer that makes it."""

    value: int
    written: int
    offset: int
    nbytes: int
    written_by: Transfer


class Tier:
    """The tier behind a link: its memory, places in it, and the engines that copy out to it and in from it."""

    def __init__(self, link: str, nbytes: int, folder: Path, mover: Mover) -> None:
        self.link, self.room, self.mover = link, Room(nbytes), mover
        self.memory: Memory = mover.memory(link, nbytes, folder)
        self.out, self.into = (mover.engine(f"{link} {way}", link) for way in ("out", "in"))

    def close(self) -> None:
        """Give it back."""
        self.out.close()
        self.into.close()
        self.memory.close()


class Tiers:
    """The copies of the engine's storages on the tiers of a plan.

    A place that was left is taken again at once: a transfer to it waits for those that still use it. ``under_way`` are
    transfers that nobody has noticed to be over, in the order of their start.
    """

    def __init__(self, nbytes: Mapping[str, int], folder: Path, mover: Mover) -> None:
        self.mover = mover
        self._tiers: dict[str, Tier] = {}
        self._kept: dict[int, dict[str, Kept]] = {}
        self._spilled: dict[int, tuple[int, int, bytes]] = {}
        self.under_way: dict[Transfer, None] = {}
        self.moved_bytes: dict[str, int] = {}
        try:
            for link, size in nbytes.items():
                self._tiers[link] = Tier(link, size, folder, mover)
        except BaseException:
            self.close()
            raise
        for tier in self._tiers.values():
            self.moved_bytes |= {tier.out.name: 0, tier.into.name: 0}

    def write(self, storage: int, link: str, value: int, written: int, held: Storage, nbytes: int) -> Transfer | None:
        """Copy the bytes of ``held`` to the tier, in place of an older copy; None if there is no room."""
        tier, kept = self._tiers[link], self._kept.setdefault(storage, {})
        if link in kept and kept[link].nbytes != nbytes:
            self.drop(storage, link)
        offset = kept[link].offset if link in kept else tier.room.take(nbytes)
        if offset is None:
            return None
        action = self.mover.out(tier.memory, offset, held, nbytes)
        place = (offset, offset + nbytes)
        made = Transfer(tier.out, link, storage, place, self._before(link, place), held, action)
        kept[link] = Kept(value, written, offset, nbytes, made)
        self._submit(made)
        return made

    def read(self, storage: int, link: str, held: Storage) -> Transfer:
        """Copy the bytes on the tier to ``held``."""
        tier, kept = self._tiers[link], self._kept[storage][link]
        place = (kept.offset, kept.offset + kept.nbytes)
        action = self.mover.into(tier.memory, kept.offset, held, kept.nbytes)
        made = Transfer(tier.into, link, storage, place, self._before(link, place), held, action)
        self._submit(made)
        return made

    def _before(self, link: str, place: tuple[int, int]) -> list[Transfer]:
        """The transfers that have to end before one that uses ``place``."""
        first, last = place
        return [t for t in self.under_way if t.link == link and t.place[0] < last and first < t.place[1]]

    def _submit(self, transfer: Transfer) -> None:
        self.moved_bytes[transfer.engine.name] += transfer.nbytes
        self.under_way[transfer] = None
        transfer.engine.submit(transfer)

    def landed(self) -> Iterator[Transfer]:
        """The transfers that are over, each once, in the order of their start."""
        for transfer in [t for t in self.under_way if t.over]:
            del self.under_way[transfer]
            yield transfer

    def holding(self, storage: int, value: int, written: int) -> str | None:
        """A link over which ``value`` can be fetched, as it was last written."""
        if self._spilled.get(storage, ())[:2] == (value, written):
            return SPILLED
        kept = self._kept.get(storage, {})
        return next((link for link, one in kept.items() if (one.value, one.written) == (value, written)), None)

    def value(self, storage: int, link: str) -> Kept | None:
        """The copy on the tier, if there is one."""
        return self._kept.get(storage, {}).get(link)

    def spill(self, storage: int, value: int, written: int, held: Storage, nbytes: int) -> None:
        """Keep the bytes of ``held`` in host memory, until they are fetched or forgotten."""
        self._spilled[storage] = (value, written, self.mover.kept(held, nbytes))

    def put_back(self, storage: int, held: Storage) -> None:
        """Copy to ``held`` what was kept beside the tiers."""
        self.mover.put_back(self._spilled.pop(storage)[2], held)

    def drop(self, storage: int, link: str) -> Kept | None:
        """Forget the copy on the tier, if there is one. Returns what it was."""
        kept = self._kept.get(storage, {}).pop(link, None)
        if kept is not None:
            self._tiers[link].room.leave(kept.offset)
        return kept

    def drop_lasting(self, storage: int, link: str) -> None:
        """Forget the copy on the tier, and keep its contents beside the tiers. Its transfers have ended. Raises
        OSError."""
        kept = self.drop(storage, link)
        if kept is not None:
            buffer = ctypes.create_string_buffer(kept.nbytes)
            self._tiers[link].memory.read(kept.offset, ctypes.addressof(buffer), kept.nbytes)
            self._spilled[storage] = (kept.value, kept.written, buffer.raw)

    def lost(self, transfer: Transfer) -> None:
        """``transfer``, a copy out, has failed: the tier has no copy by it."""
        kept = self.value(transfer.storage, transfer.link)
        if kept is not None and kept.written_by is transfer:
            self.drop(transfer.storage, transfer.link)

    def again(self, storage: int, transfer: Transfer, kept: Kept) -> None:
        """``transfer``, which read ``kept``, has failed: the copy is there still, though it was dropped meanwhile. What
        was to overwrite it has failed with it."""
        if self.value(storage, transfer.link) is None and self._tiers[transfer.link].room.take_at(
            kept.offset, kept.nbytes
        ):
            self._kept.setdefault(storage, {})[transfer.link] = kept

    def forget(self, storage: int) -> None:
        """Forget all copies of a storage."""
        self._spilled.pop(storage, None)
        for link in list(self._kept.get(storage, ())):
            self.drop(storage, link)
        self._kept.pop(storage, None)

    def close(self) -> None:
        """Give the tiers back, when all transfers have ended."""
        for transfer in self.under_way:
            transfer.wait()
            transfer.held = None
        self.under_way.clear()
        self._kept.clear()
        self._spilled.clear()
        for tier in self._tiers.values():
            tier.close()


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
