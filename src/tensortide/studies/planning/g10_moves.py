"""Moves of G10's policies as choices of what moves, from which the planner goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from tensortide.plans.transfers.choosing import Choosing
from tensortide.plans.transfers.search import Planner
from tensortide.plans.under_budget.tables import Ints
from tensortide.replays.g10.candidates import policies_moves
from tensortide.replays.g10.machine import AUTHORS, machine_of, trace_of
from tensortide.replays.g10.outcome import Move
from tensortide.search_limit import Look
from tensortide.studies.planning.problem import Problem
from tensortide.timing.clusters import Tier

MOST_OPS = 5_000
"""Longest step, in ops, for which the policies plan."""


def policies_choices(problem: Problem, look: Look) -> Iterator[Planner]:
    """Yield what each policy moves, for a step in recorded order; nothing for one of more than ``MOST_OPS`` ops, or of
    several devices. ``look`` is called now and then."""
    if len(problem.instance.ops) > MOST_OPS:
        return
    trace = trace_of(problem.recording.graph, problem.recording.durations_ns)
    tiers = tuple(map(Tier, problem.instance.links))
    device = msgspec.structs.replace(AUTHORS, capacity_bytes=problem.budget_bytes, tiers=tiers)
    for moves in policies_moves(trace, machine_of(device), look):
        yield partial(_choice, moves)


def _choice(moves: Sequence[Move], choosing: Choosing) -> Ints:
    """Choose the idle intervals that ``moves`` name: until what needs the tensor, or over the end of the step."""
    choice, v = choosing.nothing(), choosing.v
    for move in moves:
        for i in choosing.of_storage.get(move.tensor, ()):
            if bool(v.wraps[i]) == move.around and v.after[i] == move.needed:
                choosing.choose(choice, i, move.place)
    return choice
