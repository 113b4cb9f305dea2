"""The passes of one rank: its part of the batch, of every layer, of each sequence, of the experts."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.graph.model import Graph
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.batch import batch_of, batch_part
from tensortide.parallelism.context import context_parallel
from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.divided_step import Division
from tensortide.parallelism.experts import expert_parallel
from tensortide.parallelism.experts.owners import DATA as EXPERT_DATA
from tensortide.parallelism.gradients import GROUP as DATA
from tensortide.parallelism.gradients import Replicas, average_gradients
from tensortide.parallelism.shared import Shared
from tensortide.parallelism.tensor import Choice, shardable
from tensortide.parallelism.tensor_graph import tensor_parallel
from tensortide.parallelism.tensor_groups import tensor_in_groups
from tensortide.parallelism.zero import ACROSS as ZERO_DATA
from tensortide.parallelism.zero import GROUP as ZERO
from tensortide.parallelism.zero import sharded_state
from tensortide.timelines.data_parallel import BUCKET_BYTES


class Coordinates(NamedTuple):
    """The position of a rank in each of its groups. ``expert``: among ranks that share experts, unless that of its data
    and context."""

    data: int = 0
    context: int = 0
    tensor: int = 0
    expert: int | None = None


class RankStep(NamedTuple):
    """The step of one rank before gradients are exchanged, and the ``divisions`` that led to it in order.

    ``batch`` is that of the whole step, ``micro_batch`` that of the rank, ``choice`` what the tensor group divides;
    ``experts`` are the names of the parameters of experts, ``fullest`` the ranks that have most rows of them.
    """

    graph: Graph
    divisions: tuple[Division, ...] = ()
    batch: int | None = None
    micro_batch: int | None = None
    choice: Choice = Choice(frozenset(), (), ())
    remarks: tuple[str, ...] = ()
    experts: frozenset[str] = frozenset()
    fullest: tuple[int, ...] = ()


def rank_step(
    graph: Graph,
    degrees: Degrees,
    coordinates: Coordinates,
    *,
    batch_dimension: int | None = None,
    is_local: bool = False,
    shared: Shared | None = None,
) -> RankStep:
    """Divide ``graph`` for the rank at ``coordinates``; ``shared``: results of earlier divisions.

    Raises DegreesError as ``per_rank`` does.
    """
    shared = Shared() if shared is None else shared
    parts = 1 if is_local else degrees.data * degrees.micro_batches
    batch, micro_batch, choice = None, None, Choice(frozenset(), (), ())
    divisions: list[Division] = []
    remarks: tuple[str, ...] = ()
    sequence = 1
    if parts > 1 or degrees.context > 1:
        analysis = shared(analyzed, graph)
        found = shared(batch_of, analysis, batch_dimension)
        sequence = found.sequence_dimension
        if parts > 1:
            graph, batch, division, remarks = shared(batch_part, analysis, parts, found)
            divisions.append(division)
            micro_batch = batch // parts
    if degrees.kv_group:
        graph, choice, both = shared(tensor_in_groups, graph, degrees.tensor, degrees.kv_group, coordinates.tensor)
        divisions += both
    elif degrees.tensor > 1:
        whole, along = shared(shardable, shared(analyzed, graph)), degrees.sequence > 0
        graph, choice, division = shared(tensor_parallel, whole, degrees.tensor, coordinates.tensor, sequence=along)
        divisions.append(division)
    if degrees.context > 1:
        graph, division = shared(context_parallel, graph, degrees.context, coordinates.context, sequence)
        of_part = tuple(each._replace(flops=each.flops // degrees.context) for each in choice.replicated)
        choice = choice._replace(replicated=of_part)
        divisions.append(division)
    if degrees.expert == 1:
        return RankStep(graph, tuple(divisions), batch, micro_batch, choice, (*remarks, *choice.remarks))
    rank = coordinates.expert
    if rank is None:
        rank = (coordinates.data * degrees.context + coordinates.context) % degrees.expert
    spread = shared(expert_parallel, graph, degrees.expert, rank)
    divisions.append(spread.division)
    remarks = (*remarks, *choice.remarks, *spread.remarks)
    return RankStep(spread.graph, tuple(divisions), batch, micro_batch, choice, remarks, spread.names, spread.fullest)


def exchanging(
    graph: Graph, degrees: Degrees, experts: frozenset[str], bucket_bytes: int = BUCKET_BYTES, replica: int = 0
) -> Graph:
    """``graph``, of the rank ``replica`` among those of data and context, with the exchange of its gradients, and with
    what ZeRO shards. Gradients of ``experts`` are those of all tokens that came to them: they are divided by the ranks
    from which tokens come, and averaged among the ranks that have the same ones."""
    groups = [Replicas(DATA, degrees.replicas, replica)]
    if degrees.shards < degrees.replicas:
        groups = [Replicas(ZERO, degrees.shards, replica % degrees.shards, across=ZERO_DATA)]
    if experts:
        groups = [
            Replicas(DATA, degrees.replicas, replica, without=experts),
            Replicas(
                EXPERT_DATA,
                degrees.replicas // degrees.expert,
                replica // degrees.expert,
                only=experts,
                scale=1 / degrees.expert,
            ),
        ]
    for each in groups:
        if degrees.zero and each.ranks > 1:
            graph = sharded_state(graph, each, degrees.zero, bucket_bytes)
        elif each.ranks > 1 or each.scale != 1:
            graph = average_gradients(graph, each, bucket_bytes)
    return graph
