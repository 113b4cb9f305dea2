"""Moves of G10's policies as plans that the planner is never slower than; the best of them without its idle moves."""

from __future__ import annotations

from tensortide.plans.transfers.search import Moved, Transfers
from tensortide.replays.g10.candidates import Candidate, candidates, tokens_of
from tensortide.replays.g10.machine import Machine, trace_of
from tensortide.studies.planning.request import Request
from tensortide.timing.machine import Link

MOST_OPS = 3_000
"""Longest step, in ops, for which the moves of policies are played."""
MOST_PRUNED = 400
"""Moves of the best policy that are left out, one by one, to see whether the step is faster without."""


def offer_policies(search: Transfers, request: Request) -> None:
    """Offer ``search`` the moves of the policies; then those of the best of them that a plan is faster with.

    Nothing is done for steps of more than ``MOST_OPS`` ops.
    """
    if len(search.instance.ops) > MOST_OPS:
        return
    trace = trace_of(request.recording.graph, request.recording.durations_ns)
    best: tuple[Moved, Candidate] | None = None
    for candidate in candidates(trace, machine_of(search.instance.links, request.budget_bytes)):
        if search.done():
            return
        found = search.offer(*tokens_of(search.instance, candidate), candidate.name)
        if found is not None and (best is None or found.rank < best[0].rank):
            best = found, candidate
    if best is not None and search.best is best[0]:
        _prune(search, *best)


def machine_of(links: tuple[Link, ...], budget_bytes: int) -> Machine:
    """The machine of the policies: a wire with the rates of all links together."""
    rates = {link.name: int(link.bytes_per_s) for link in links}
    host = next((link for link in links if link.name == "host"), None)
    plain = Machine()
    drive = rates.get("ssd", min(plain.drive, sum(rates.values())))
    capacity = plain.host_bytes if host is None or host.capacity_bytes is None else host.capacity_bytes
    return Machine(budget_bytes, capacity, sum(rates.values()), drive)


def _prune(search: Transfers, best: Moved, candidate: Candidate) -> None:
    """Leave out one move after the other, the shortest first, as long as the plan is no worse without."""
    for move in sorted(candidate.moves, key=lambda move: (move.around, move.needed - move.out))[:MOST_PRUNED]:
        if search.done():
            return
        fewer = candidate._replace(moves=tuple(one for one in candidate.moves if one is not move))
        found = search.offer(*tokens_of(search.instance, fewer), f"{candidate.name}, less those that do not pay")
        if found is not None and found.rank <= best.rank:
            best, candidate = found, fewer
