"""Listeners to a program as it follows a Graph, step after step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensortide.run.step_match import Seen, StepMatch
    from tensortide.run.transfers import Transfer


class StepListener:
    """A listener to the program as a StepMatch follows it; those that it has been given to have it as ``match``."""

    match: StepMatch

    def begins(self) -> None:
        """A step has begun; its first ops are taken next."""

    def reaches(self, op: int) -> None:
        """The program is about to run op ``op`` of the graph, or has come to the end of the step."""

    def takes(self, op: int, seen: Seen) -> None:
        """The program ran op ``op`` of the graph."""

    def hears(self, kind: int, index: int, began_ns: int, ended_ns: int, resident_bytes: int) -> None:
        """An event (``timelines.events.Kind``): a storage of the graph went, or an op of it ran again; NOTHING: one
        that it does not have. For the latter, when it began and ended, and the bytes that were resident with it."""

    def moves(self, kind: int, storage: int, transfer: Transfer | None, resident_bytes: int) -> None:
        """A copy or a fetch of a storage of the graph (NOTHING: of another) has begun, with which so many bytes are
        resident. None: what was kept beside the tiers is fetched."""

    def unneeded(self, op: int) -> int:
        """The number of ops of the graph, from ``op`` on, of which the listener need not hear."""
        return 0

    def rests(self) -> None:
        """The listener hears of no op until it ``wakes``."""

    def wakes(self) -> None:
        """The listener hears of the ops that come now."""

    def ends(self) -> None:
        """The step agreed to its end."""

    def leaves(self, op: int, expected: str, came: str) -> None:
        """The program left the graph at op ``op``: it ran ``came`` where ``expected`` was due."""
