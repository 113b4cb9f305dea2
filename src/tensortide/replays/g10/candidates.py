"""Moves of G10's tensor-granular policies as plans by the event rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.model import Compute, Copy, Fetch
from tensortide.plans.transfers.residences import Token
from tensortide.replays.g10.flashneuron import offloads
from tensortide.replays.g10.machine import Machine, Trace
from tensortide.replays.g10.outcome import Move
from tensortide.replays.g10.planner import scheme
from tensortide.search_limit import Look, no_look

_AS_PLANNED = 1 << 30
AHEAD = (_AS_PLANNED, 256, 64, 16, 8, 5, 3, 1)
"""Kernels by which a fetch may precede the one that needs it, at most: a candidate for each."""


class Candidate(NamedTuple):
    """Moves whose fetches precede what needs them by ``ahead`` kernels at most."""

    name: str
    moves: tuple[Move, ...]
    ahead: int


def candidates(trace: Trace, machine: Machine, look: Look = no_look) -> Iterator[Candidate]:
    """Yield the moves of each policy; whether they fit is not checked. ``look`` is called now and then."""
    for name, moves in _moves(trace, machine, look):
        for ahead in AHEAD if moves else ():
            late = "" if ahead == _AS_PLANNED else f", fetched at most {ahead} kernels ahead"
            yield Candidate(f"{name}{late}", moves, ahead)


def tokens_of(instance: Instance, candidate: Candidate) -> tuple[list[Token], dict[int, str]]:
    """Make the tokens of a plan of ``instance``, and homes on tiers.

    Only what may move does, each storage once; what should go to a tier that the instance has no link to goes to the
    one that it has.
    """
    links: Sequence[str] = [link.name for link in instance.links]
    before: dict[int, list[Token]] = {}
    home: dict[int, str] = {}
    seen: set[int] = set()
    last = {s: op for op, row in enumerate(instance.ops) for s in row.touches}
    for move in candidate.moves:
        storage = instance.storages[move.tensor]
        if move.tensor in seen or storage.pinned or (move.around and not storage.persistent):
            continue
        seen.add(move.tensor)
        link = move.place if move.place in links else links[0]
        back = max(min(move.back, move.needed), move.needed - candidate.ahead, 0 if move.around else move.out)
        if not move.around:
            before.setdefault(move.out, []).append(Copy(move.tensor, link))
        else:
            home[move.tensor] = link
            if instance.states[-1][move.tensor] != BEFORE:
                before.setdefault(last[move.tensor] + 1, []).append(Copy(move.tensor, link))
        before.setdefault(back, []).append(Fetch(move.tensor, link))
    tokens: list[Token] = []
    for op in range(len(instance.ops) + 1):
        tokens += sorted(before.get(op, ()), key=lambda token: isinstance(token, Fetch))
        tokens += [Compute(op)] if op < len(instance.ops) else []
    return tokens, home


def _moves(trace: Trace, machine: Machine, look: Look) -> Iterator[tuple[str, tuple[Move, ...]]]:
    """Yield the moves of each policy that moves whole tensors, and of G10's page policy."""
    yield "G10's moves", scheme(trace, machine, look=look).moves
    yield "FlashNeuron's moves", tuple(_of_flashneuron(trace, machine))
    for name, host in (("G10-GDS's moves", False), ("G10-Host's moves", True)):
        planned = scheme(trace, machine, host=host, granular=True, look=look)
        yield name, (*planned.moves, *planned.forced)


def _of_flashneuron(trace: Trace, machine: Machine) -> Iterator[Move]:
    chosen, uses = offloads(trace, machine), trace.uses
    for tensor, out in chosen.leaves.items() if chosen.fits else ():
        needed = next(use for use in uses[tensor] if use >= out)
        yield Move(tensor, "ssd", out, trace.loss, needed)
