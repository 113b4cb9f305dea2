"""The fastest plan with transfers that is found for some sequences of ops: greedy in rounds, or on demand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tensortide.errors import PlanError
from tensortide.plans.events import Played, play
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.model import Compute, Step
from tensortide.plans.transfers.greedy import Greedy
from tensortide.plans.transfers.ledger import Ledger
from tensortide.plans.transfers.ondemand import on_demand
from tensortide.plans.transfers.residences import Residences, Token, residences, steps_of

PATIENCE = 3
"""Rounds without a better plan after which a sequence is left."""


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """A plan with transfers, as played. ``source`` says in words where it comes from."""

    steps: tuple[Step, ...]
    home: Mapping[int, str]
    played: Played
    source: str

    @property
    def rank(self) -> tuple[int, int]:
        """The faster plan is better, of equals that which moves less."""
        return self.played.makespan_ns, sum(self.played.moved_bytes.values())


@dataclass
class Transfers:
    """Search for plans of ``instance`` within ``budget_bytes``, until ``deadline`` (of ``time.monotonic``).

    ``reason``: why the last plan did not fit. ``bound_ns``: a time that none undercuts, if known.
    """

    instance: Instance
    budget_bytes: int
    deadline: float = float("inf")
    best: Moved | None = None
    work: int = 0
    reason: str = ""
    bound_ns: int = 0

    def offer(self, tokens: Iterable[Token], home: Mapping[int, str], source: str) -> Moved | None:
        """Play a plan; keep it if it fits and is better. Returns it if it fits."""
        return self.offer_steps(steps_of(self.instance, tokens), home, source)

    def offer_steps(self, steps: Sequence[Step], home: Mapping[int, str], source: str) -> Moved | None:
        """Play the steps of a plan; keep it if it fits and is better. Returns it if it fits."""
        self.work += 1
        try:
            played = play(self.instance, steps, home=home, budget_bytes=self.budget_bytes)
        except PlanError as error:
            self.reason = str(error)
            return None
        found = Moved(tuple(steps), dict(home), played, source)
        if self.best is None or found.rank < self.best.rank:
            self.best = found
        return found

    def done(self) -> bool:
        """Whether the time is up, or no plan can be faster."""
        least = self.best is not None and self.best.played.makespan_ns <= max(self.bound_ns, self.instance.base_ns)
        return least or time.monotonic() > self.deadline

    def sequence(self, sequence: Sequence[int], rounds: int, source: str) -> None:
        """Offload in a sequence: greedy rounds, each on the time axis of the best one before."""
        found = residences(self.instance, sequence)
        if found.level.max(initial=0) <= self.budget_bytes:
            self.offer(map(Compute, sequence), self.homes({}), source)
            return
        self._rounds(found, rounds, source)
        if self.best is None:
            try:
                tokens, homes = on_demand(self.instance, sequence, self.budget_bytes)
            except PlanError as error:
                self.reason = str(error)
            else:
                self.offer(tokens, homes, source)

    def homes(self, chosen: Mapping[int, str]) -> dict[int, str]:
        """The homes of all persistent storages that can have one anywhere: the device unless one is chosen."""
        movable = (s for s in self.instance.home if self.instance.storages[s].persistent)
        return {s: DEVICE for s in movable if not self.instance.storages[s].pinned} | dict(chosen)

    def _rounds(self, found: Residences, rounds: int, source: str) -> None:
        starts: list[int] | None = None
        best: Moved | None = None
        idle_rounds = 0
        for _ in range(rounds):
            greedy = Greedy(self.instance, found, self.budget_bytes, Ledger(self.instance, found.sequence, starts))
            made = self.offer(greedy.tokens(), self.homes(greedy.homes), source) if greedy.run(self.deadline) else None
            if made is None:
                return
            better = best is None or made.rank < best.rank
            idle_rounds = 0 if better else idle_rounds + 1
            best = made if best is None or better else best
            if idle_rounds >= PATIENCE or self.done() or not made.played.stall_ns + made.played.tail_ns:
                return
            starts = _starts(made.played)


def _starts(played: Played) -> list[int]:
    """The axis of a plan as played: the start of each op, and the end of the step."""
    runs = [start for step, start in zip(played.steps, played.start_ns, strict=True) if isinstance(step, Compute)]
    return [*runs, played.makespan_ns]
