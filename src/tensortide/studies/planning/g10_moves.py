"""Moves of G10's policies as plans that the planner is never slower than; the best of them without its idle moves."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tensortide.plans.transfers.search import Moved, Transfers
from tensortide.replays.g10.candidates import Candidate, candidates, tokens_of
from tensortide.replays.g10.machine import AUTHORS, machine_of, trace_of
from tensortide.studies.planning.problem import Problem
from tensortide.timing.clusters import Tier

MOST_OPS = 3_000
"""Longest step, in ops, for which the moves of policies are played."""
MOST_PRUNED = 400
"""Moves of the best policy that are left out, one by one, to see whether the step is faster without."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """The best plan that makes the moves of a policy, and those moves."""

    found: Moved
    candidate: Candidate


def policies_plan(problem: Problem, within: Transfers) -> Theirs | None:
    """Play the moves of the policies in the limit of a search; None if none fits, for steps that fit as recorded, and
    for those of more than ``MOST_OPS`` ops."""
    instance = problem.instance
    fits = problem.recorded_peak_bytes <= problem.budget_bytes
    if len(instance.ops) > MOST_OPS or fits or within.limit.spent:
        return None
    search = Transfers(instance, problem.budget_bytes, within.limit)
    trace = trace_of(problem.recording.graph, problem.recording.durations_ns)
    tiers = tuple(map(Tier, instance.links))
    device = msgspec.structs.replace(AUTHORS, capacity_bytes=problem.budget_bytes, tiers=tiers)
    best: Theirs | None = None
    for candidate in candidates(trace, machine_of(device), within.look):
        within.look()
        if search.done():
            break
        found = search.offer(*tokens_of(instance, candidate), candidate.name)
        if found is not None and found is search.best:
            best = Theirs(found, candidate)
    return best


def adopt(search: Transfers, theirs: Theirs | None) -> None:
    """Have ``search`` keep the best plan of the policies if it is better, and leave out the moves that do not pay."""
    if theirs is not None and (search.best is None or theirs.found.rank < search.best.rank):
        search.best = theirs.found
        _prune(search, theirs)


def _prune(search: Transfers, theirs: Theirs) -> None:
    """Leave out one move after the other, the shortest first, as long as the plan is no worse without."""
    best, candidate = theirs.found, theirs.candidate
    for move in sorted(candidate.moves, key=lambda move: (move.around, move.needed - move.out))[:MOST_PRUNED]:
        search.look()
        if search.done():
            return
        fewer = candidate._replace(moves=tuple(one for one in candidate.moves if one is not move))
        found = search.offer(*tokens_of(search.instance, fewer), f"{theirs.candidate.name}, less those that do not pay")
        if found is not None and found.rank <= best.rank:
            best, candidate = found, fewer
