"""Search for the fastest sequence within a budget, from those that are known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance
from tensortide.plans.under_budget.planned import Rival
from tensortide.plans.under_budget.sequence import Played, play
from tensortide.plans.under_budget.tables import Tables

Watch: TypeAlias = "Callable[[int | None, int], bool]"
"""Called with the time of the best plan so far (None: there is none yet) and the bound, in nanoseconds, whenever one of
them improves, and now and then; returns whether to go on."""
Known: TypeAlias = "tuple[str, list[int] | str]"
"""The name of a plan, with its ops in order, or with the reason why there is none."""


class Stopped(Exception):
    """The time is up, or the listener has had enough."""


@dataclass
class Incumbent:
    """The best plan so far, the bound, and what is left of the limits."""

    instance: Instance
    t: Tables
    budget_bytes: int
    free: bool
    watch: Watch | None = None
    deadline: float = float("inf")
    best: Played | None = None
    source: str = ""
    bound_ns: int = 0
    work: int = 0
    rivals: dict[str, Rival] = field(default_factory=dict)

    def offer(self, played: Played, source: str) -> bool:
        """Take ``played`` if it fits and is better; of equals in time the one of the lower peak."""
        if played.peak_bytes > self.budget_bytes:
            return False
        best = self.best
        if best is not None and (played.time_ns, played.peak_bytes) >= (best.time_ns, best.peak_bytes):
            return False
        self.best, self.source = played, source
        self.look()
        return True

    def look(self) -> None:
        """Raise Stopped if the search is to end."""
        goes_on = self.watch is None or self.watch(None if self.best is None else self.best.time_ns, self.bound_ns)
        if not goes_on or time.monotonic() > self.deadline:
            raise Stopped

    def take_known(self, known: Iterable[Known]) -> None:
        """Play every known plan; each name keeps its best one as a rival."""
        for name, found in known:
            rival = self._rival(name, found)
            before = self.rivals.get(name)
            if before is None or _rank(rival) < _rank(before):
                self.rivals[name] = rival

    def _rival(self, name: str, found: list[int] | str) -> Rival:
        if isinstance(found, str):
            return Rival(name, reason=found)
        try:
            played = play(self.instance, self.t, found, free=self.free)
        except PlanError as error:
            return Rival(name, reason=str(error))
        self.offer(played, name)
        over = played.peak_bytes - self.budget_bytes
        reason = f"{over:,} bytes over the budget" if over > 0 else ""
        return Rival(name, played.time_ns, played.peak_bytes, reason)


def _rank(rival: Rival) -> tuple[bool, bool, int, int]:
    """The fastest that fits before all others, of those the one of the lowest peak."""
    over = bool(rival.reason)
    time_ns, peak = rival.time_ns or 0, rival.peak_bytes or 0
    return over, rival.time_ns is None, peak if over else time_ns, time_ns if over else peak
