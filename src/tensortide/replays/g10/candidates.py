"""Moves of G10's tensor-granular policies, and of its page policy, as its planner makes them."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.replays.g10.flashneuron import offloads
from tensortide.replays.g10.machine import G10Machine, Trace
from tensortide.replays.g10.outcome import Move
from tensortide.replays.g10.planner import scheme
from tensortide.search_limit import Look, no_look


def policies_moves(trace: Trace, machine: G10Machine, look: Look = no_look) -> Iterator[tuple[Move, ...]]:
    """Yield the moves of each policy; whether they fit is not checked. ``look`` is called now and then."""
    yield scheme(trace, machine, look=look).moves
    yield tuple(_of_flashneuron(trace, machine))
    for host in (False, True):
        planned = scheme(trace, machine, host=host, granular=True, look=look)
        yield (*planned.moves, *planned.forced)


def _of_flashneuron(trace: Trace, machine: G10Machine) -> Iterator[Move]:
    chosen, uses = offloads(trace, machine), trace.uses
    for tensor, out in chosen.leaves.items() if chosen.fits else ():
        needed = next(use for use in uses[tensor] if use >= out)
        yield Move(tensor, "ssd", out, trace.loss, needed)
