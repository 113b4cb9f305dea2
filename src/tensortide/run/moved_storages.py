"""Storages that leave or arrive, and the waits for their transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tensortide.run.block import Storage

if TYPE_CHECKING:
    from tensortide.run.tiers import Kept
    from tensortide.run.transfers import Transfer


class Wait(NamedTuple):
    """A time in which the program waited for a transfer, and why (``plans.events.Stall``)."""

    transfer: Transfer
    began_ns: int
    ended_ns: int
    cause: Literal["fetch", "copy", "room", "serial"]


class Leaving(NamedTuple):
    """A storage that was evicted while ``transfers`` copy it: what it was, and its bytes."""

    storage: int
    value: int
    transfers: tuple[Transfer, ...]
    held: Storage
    nbytes: int


class Arriving(NamedTuple):
    """A storage that ``transfer`` brings back: the copy on the tier that it reads, and what it is read to."""

    copy: Kept
    transfer: Transfer
    made: Storage
    stream: int | None
    """The stream that the bytes belong to (``queues.Streams``)."""
