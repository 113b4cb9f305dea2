"""Plans with links: what moves, beside the recomputation that other budgets would ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensortide.plans.instance import Instance
from tensortide.plans.transfers.search import Transfers
from tensortide.studies.planning.known import Asked, online

ROUNDS = 12
"""Greedy rounds for a sequence."""
SHARES = (0.75, 0.5, 0.25)
"""Between the budget and the peak of the step as recorded: budgets whose recomputation is tried, the rest moves."""


def moved(
    instance: Instance, asked: Asked, known: Iterable[tuple[str, Sequence[int]]], peak_bytes: int, deadline: float
) -> Transfers:
    """The fastest plan found for ``instance``, whose links may be used: in recorded order, in the ``known`` sequences,
    and in those that online policies find for larger budgets. ``peak_bytes`` is that of the step as recorded."""
    search = Transfers(instance, asked.budget_bytes, deadline)
    for name, sequence in (("as recorded", range(len(instance.ops))), *known, *_relaxed(asked, peak_bytes)):
        if search.done():
            break
        search.sequence(sequence, ROUNDS, name)
    return search


def _relaxed(asked: Asked, peak_bytes: int) -> Iterator[tuple[str, list[int]]]:
    for share in SHARES:
        budget = asked.budget_bytes + int(share * max(0, peak_bytes - asked.budget_bytes))
        for name, found in online(Asked(asked.recording, asked.device, budget, asked.workspace)):
            if not isinstance(found, str):
                yield name, found
