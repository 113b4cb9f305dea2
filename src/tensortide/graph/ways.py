"""Ways of data between the ranks of a job: the groups and pairs of ranks in which the ops of one rank communicate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensortide.graph.communication import group_of, kind_of, moves_data, peer_of
from tensortide.graph.model import Graph, OpView

SEND_RECV = "send_recv"


class Way(NamedTuple):
    """A queue of collectives or messages, one after the other: those of the group of ``ranks`` that is ``number`` of
    all groups of the same ranks, or the messages from one of them, ``sender``, to ``receiver``."""

    ranks: tuple[int, ...]
    number: int
    sender: int = -1
    receiver: int = -1

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks between which data move."""
        return self.ranks if self.sender < 0 else (self.sender, self.receiver)


def ways(rank: int, graph: Graph) -> Iterator[tuple[OpView, Way]]:
    """Yield the collectives and messages of the step ``graph`` of a rank, each with its way. The rank is alone on that
    of a step without groups."""
    numbers: dict[tuple[int, ...], int] = {}
    groups: dict[str, Way] = {}
    for name, ranks in graph.meta.groups.items():
        numbers[ranks] = numbers.get(ranks, -1) + 1
        groups[name] = Way(ranks, numbers[ranks])
    every = next(iter(groups.values()), Way((rank,), 0))
    for op in graph:
        if not moves_data(op.name):
            continue
        way = groups.get(group_of(op), every)
        if kind_of(op.name) == SEND_RECV and (place := peer_of(op)) >= 0:
            pair = (rank, way.ranks[place])
            sender, receiver = pair if "dst" in dict(op.call.arguments) else pair[::-1]
            way = way._replace(sender=sender, receiver=receiver)
        yield op, way


def rank_of(graph: Graph) -> int:
    """Return a rank whose step ``graph`` may be: one of all of its groups, which sends no message to itself."""
    every = set.intersection(*map(set, graph.meta.groups.values())) if graph.meta.groups else {0}
    own = (rank for rank in every if all(way.sender < 0 or way.sender != way.receiver for _, way in ways(rank, graph)))
    return min(own, default=0)


def peers(rank: int, graph: Graph) -> set[int]:
    """The ranks to which the step of ``rank`` sends messages, or from which it receives some."""
    return {each for _, way in ways(rank, graph) for each in (way.sender, way.receiver)} - {rank, -1}
