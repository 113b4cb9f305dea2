"""The passes of one rank: its part of the batch, of every layer, of each sequence, of the experts."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.graph.model import Graph
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.batch import batch_of, batch_part
from tensortide.parallelism.context import context_parallel
from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.divided_step import Division
from tensortide.parallelism.tensor import Choice
from tensortide.parallelism.tensor_graph import tensor_parallel


class Place(NamedTuple):
    """The position of a rank in each of its groups."""

    data: int = 0
    context: int = 0
    tensor: int = 0


class RankStep(NamedTuple):
    """The step of one rank before gradients are exchanged, the ``divisions`` that led to it in order, the ``batch`` of
    the whole step and that of the rank, what the tensor group divides, and the names of the rank's experts."""

    graph: Graph
    divisions: tuple[Division, ...] = ()
    batch: int | None = None
    micro_batch: int | None = None
    choice: Choice = Choice(frozenset(), (), ())
    experts: frozenset[str] = frozenset()


def rank_step(
    graph: Graph,
    degrees: Degrees,
    place: Place,
    *,
    batch_dimension: int | None = None,
    is_local: bool = False,
) -> RankStep:
    """Divide ``graph`` for the rank at ``place``. Raises DegreesError as ``per_rank`` does."""
    parts = 1 if is_local else degrees.data * degrees.micro_batches
    batch, micro_batch, choice = None, None, Choice(frozenset(), (), ())
    divisions: list[Division] = []
    sequence = 1
    if parts > 1 or degrees.context > 1:
        analysis = analyzed(graph)
        found = batch_of(analysis, batch_dimension)
        sequence = 0 if found.dimension else 1
        if parts > 1:
            graph, batch, division = batch_part(analysis, parts, found)
            divisions.append(division)
            micro_batch = batch // parts
    if degrees.tensor > 1:
        graph, choice, division = tensor_parallel(graph, degrees.tensor, place.tensor)
        divisions.append(division)
    if degrees.context > 1:
        graph, division = context_parallel(graph, degrees.context, place.context, sequence)
        divisions.append(division)
    return RankStep(graph, tuple(divisions), batch, micro_batch, choice)
