"""The passes of one rank: its part of the batch, of every layer, of each sequence, of the experts."""

from __future__ import annotations

import importlib

from tensortide.graph.model import Graph
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.divided_step import Asked, Coordinates, RankStep
from tensortide.parallelism.exchange import exchanged
from tensortide.parallelism.experts.owners import DATA as EXPERT_DATA
from tensortide.parallelism.gradients import GROUP as DATA
from tensortide.parallelism.gradients import Replicas, average_gradients
from tensortide.parallelism.made_batch import given_batch
from tensortide.parallelism.reshaped_in_place import with_views
from tensortide.parallelism.shared import Shared
from tensortide.parallelism.zero import ACROSS as ZERO_DATA
from tensortide.parallelism.zero import GROUP as ZERO
from tensortide.parallelism.zero import sharded_state
from tensortide.timelines.data_parallel import BUCKET_BYTES


def rank_step(
    graph: Graph,
    degrees: Degrees,
    coordinates: Coordinates,
    *,
    batch_dimension: int | None = None,
    is_local: bool = False,
    shared: Shared | None = None,
) -> RankStep:
    """Divide ``graph`` for the rank at ``coordinates``, by the seed of each axis; ``shared``: results of earlier ones.

    Raises DegreesError as ``per_rank`` does.
    """
    shared = Shared() if shared is None else shared
    step = RankStep(shared(with_views, graph))
    if degrees.context > 1 or (degrees.data * degrees.micro_batches > 1 and not is_local):
        step = shared(given_batch, shared(analyzed, step.graph))
    asked = Asked(step.graph, degrees, coordinates, shared, batch_dimension, is_local)
    for axis in degrees.in_order():
        made = importlib.import_module(axis.seed, __package__).divide(step, asked) if axis.seed else None
        step = step if made is None else step.then(made)
    of_part = (each._replace(flops=each.flops // degrees.context) for each in step.replicated)
    return step._replace(graph=shared(exchanged, step.graph), replicated=tuple(of_part))


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
