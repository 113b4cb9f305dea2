"""The Graphs of the ranks of a step on many devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tensortide.errors import DegreesError
from tensortide.graph.communication import group_of, kind_of, moves_data, payload_bytes
from tensortide.graph.model import Graph
from tensortide.parallelism.accumulation import resident_bytes
from tensortide.parallelism.degrees import Degrees, check_supported
from tensortide.parallelism.divided import GROUP as PIPELINE
from tensortide.parallelism.divided_step import Coordinates, Replicated
from tensortide.parallelism.pipeline import Transfer, pipelined
from tensortide.parallelism.rank_step import exchanging, rank_step
from tensortide.parallelism.shared import Shared
from tensortide.parallelism.tied import tied_stages
from tensortide.timelines.data_parallel import BUCKET_BYTES


class Exchanged(NamedTuple):
    """Collectives of one kind in one stage: the group of ranks, the phase, how many, and their payload in total as
    ``timing.collectives`` counts it."""

    stage: int
    kind: str
    group: str
    phase: str
    number: int
    nbytes: int


class Ranks(msgspec.Struct, frozen=True, dict=True):
    """A step divided by ``degrees``: for each pipeline stage the Graph of one of its ranks, the first of its groups.

    A Graph is of one micro-batch, of ``micro_batch`` of the ``batch``: its forward and backward pass run
    ``degrees.micro_batches`` times, its update once. Ranks of one stage do the same on other data, but for the last
    one's share of what they do not divide evenly.

    Args:
        firsts: the module with which each stage begins.
        replicated: products that every tensor-parallel rank computes in full.
        transfers: values that cross between stages for each micro-batch, and in the update.
        remarks: what else is not divided as asked, in words.
        fullest: of ranks that share experts, those whose experts have the most rows (``expert_rank`` of ``per_rank``):
            in all layers together, then in some layer; none where all have as many.
        making: the ops that make the whole batch in the captured step, where Graphs are given their part of it.
    """

    degrees: Degrees
    graphs: tuple[Graph, ...]
    firsts: tuple[str, ...] = ()
    batch: int | None = None
    micro_batch: int | None = None
    replicated: tuple[Replicated, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    remarks: tuple[str, ...] = ()
    fullest: tuple[int, ...] = ()
    making: Graph | None = None

    @property
    def graph(self) -> Graph:
        """The Graph of the first stage: the only one without pipeline parallelism."""
        return self.graphs[0]

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """Most bytes resident on a rank of each stage during a micro-batch, the gradients accumulated over
        ``degrees.micro_batches`` included; activations of other micro-batches in a pipeline are not."""
        several = self.degrees.micro_batches
        return tuple(int(resident_bytes(graph, several).max(initial=0)) for graph in self.graphs)

    @property
    def collectives(self) -> tuple[Exchanged, ...]:
        """The collectives of every stage by kind, group and phase."""
        found: dict[tuple[int, str, str, str], list[int]] = {}
        for stage, graph in enumerate(self.graphs):
            for op in graph:
                if moves_data(op.name):
                    key = stage, kind_of(op.name) or op.name, group_of(op), op.phase.value
                    found.setdefault(key, []).append(payload_bytes(op))
        return tuple(Exchanged(*key, len(sizes), sum(sizes)) for key, sizes in found.items())


def joins_stages(group: str) -> bool:
    """Return whether the ranks of a group are of several stages, which communicate once a step, before the update."""
    return group == PIPELINE or bool(tied_stages(group))


def per_rank(
    graph: Graph,
    degrees: Degrees,
    *,
    batch_dimension: int | None = None,
    is_local: bool = False,
    bucket_bytes: int = BUCKET_BYTES,
    durations: Callable[[Graph], Sequence[float]] | None = None,
    shared: Shared | None = None,
    expert_rank: int | None = None,
) -> Ranks:
    """Divide a captured step by ``degrees``.

    Args:
        graph: a step as one device runs it, on the whole batch, or with ``is_local`` on one micro-batch.
        degrees: in how many parts. With all of them 1 the Graph is returned as it is.
        batch_dimension: the dimension of its inputs that is the batch; found unless given.
        bucket_bytes: gradients that data-parallel ranks combine at once.
        durations: gives the time of every op of a Graph in any unit, by which stages are balanced; without it they are
            balanced by FLOPs and bytes.
        shared: results of earlier divisions of this Graph, for one that is divided in several ways.
        expert_rank: of the ranks that share experts, the one whose experts the Graphs have; the first of them unless
            given.

    Raises:
        DegreesError: a quotient is not whole (the message names it), the step has no batch or too few modules, its
            optimizer is not element-wise (ZeRO), it is one of several ranks already, or it has loops.

    Examples:
        >>> from tensortide import capture
        >>> from tensortide.parallelism import Degrees, per_rank
        >>> ranks = per_rank(capture("gpt2"), Degrees(data=2, tensor=2))  # doctest: +SKIP
        >>> ranks.collectives  # doctest: +SKIP
    """
    check_supported(degrees)
    if degrees.devices == degrees.micro_batches == 1:
        return Ranks(degrees, (graph,))
    _check_whole(graph)
    coordinates = Coordinates(context=degrees.context - 1, expert=expert_rank)  # whose queries see all keys
    step = rank_step(graph, degrees, coordinates, batch_dimension=batch_dimension, is_local=is_local, shared=shared)
    graph = step.graph
    graphs: tuple[Graph, ...] = (graph,)
    firsts: tuple[str, ...] = (graph.module_path(graph.ops[0].module),) if graph.ops else ()
    transfers: tuple[Transfer, ...] = ()
    if degrees.pipeline > 1:
        weights = None if durations is None else list(durations(graph))
        cut = pipelined(graph, degrees.pipeline, weights)
        graphs, firsts, transfers = cut.graphs, cut.stages.firsts, cut.transfers
    graphs = tuple(exchanging(each, degrees, step.experts, bucket_bytes, degrees.context - 1) for each in graphs)
    at = degrees.context - 1 if expert_rank is None else expert_rank
    named = tuple(_described(each, degrees, stage, at) for stage, each in enumerate(graphs))
    parts = step.batch, step.micro_batch, step.replicated, transfers, step.remarks, step.fullest, step.making
    return Ranks(degrees, named, firsts, *parts)


def replica(graph: Graph, count: int) -> Graph:
    """The step of one of ``count`` replicas, which has an equal part of the batch, before gradients are exchanged.

    Raises DegreesError as ``per_rank`` does.
    """
    _check_whole(graph)
    return rank_step(graph, Degrees(data=count), Coordinates()).graph


def _check_whole(graph: Graph) -> None:
    """Raise DegreesError for a step that is divided already, or has loops."""
    if any(len(ranks) > 1 for ranks in graph.meta.groups.values()):
        raise DegreesError("the step is one of several ranks already: divide the step of a single process")
    if graph.loops:
        raise DegreesError("the step has loops: unroll it first (tensortide.graph.unrolled)")


def _described(graph: Graph, degrees: Degrees, stage: int, at: int) -> Graph:
    """``graph`` with the ranks of its groups, those of the rank ``at`` of data and context."""
    first = stage * degrees.stage_ranks() + at * degrees.model_ranks()
    names = {group_of(op) for op in graph if moves_data(op.name)}
    groups = degrees.groups(first) | {
        name: degrees.across(first, stages) for name in sorted(names) if (stages := tied_stages(name))
    }
    assumption = f"rank {first} of {degrees.devices}: {degrees}"
    meta = replace(graph.meta, groups=groups, assumptions=(*graph.meta.assumptions, assumption))
    return replace(graph, meta=meta)
