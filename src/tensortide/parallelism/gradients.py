"""Gradients that data-parallel ranks combine: when each is ready, and the buckets in which they travel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import NamedTuple

import msgspec

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase, Role
from tensortide.parallelism.draft import Draft, Hole
from tensortide.timelines.data_parallel import BUCKET_BYTES, buckets_of

GROUP = "data"
"""Name of the process group of data parallelism."""


class Gradient(NamedTuple):
    """A gradient of a step: its storage, a tensor of all of it, and the op in the backward pass that completes it."""

    storage: int
    tensor: int
    ready: int


class Replicas(NamedTuple):
    """Ranks that have the same parameters: their ``group``, how many, and which of them this is.

    Parameters are ``only`` those of these names if there are any, ``without`` others; their gradients are multiplied by
    ``scale`` first. Where the ranks shard, others have the same parts: those of the group ``across``, if there is one.
    """

    group: str
    ranks: int
    rank: int = 0
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    scale: float = 1.0
    across: str = ""

    def has(self, name: str) -> bool:
        """Return whether a parameter, or its gradient, is one of theirs."""
        parameter = name.removesuffix(".grad")
        return parameter not in self.without and (not self.only or parameter in self.only)


ALL = Replicas(GROUP, 1)
"""All parameters, of one replica."""


class Bucket(NamedTuple):
    """Gradients that are combined at once, after the op at ``ready``."""

    gradients: tuple[Gradient, ...]
    ready: int


def gradients(graph: Graph, replicas: Replicas = ALL) -> list[Gradient]:
    """The gradients of ``replicas`` that the backward pass writes, in the order in which they are ready."""
    own = [each for each in graph.named if each.role is Role.GRADIENT and replicas.has(each.name)]
    named = {graph.tensors[each.tensor].storage: each.tensor for each in own}
    ready: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.BACKWARD:
            for storage in (*graph.index.allocated[index], *graph.index.writes[index]):
                if storage in named:
                    ready[storage] = index
    found = [Gradient(storage, named[storage], index) for storage, index in ready.items()]
    return sorted(found, key=lambda gradient: (gradient.ready, gradient.storage))


def buckets(
    graph: Graph, replicas: Replicas, limit: int = BUCKET_BYTES, unit: Callable[[Gradient], Hashable] | None = None
) -> list[Bucket]:
    """Buckets that are full with ``limit`` bytes, in the order in which they leave, each after those before; with
    ``unit`` one for each unit, when its last gradient is ready."""
    own = gradients(graph, replicas)
    if unit is not None:
        groups: dict[Hashable, list[Gradient]] = {}
        for gradient in own:
            groups.setdefault(unit(gradient), []).append(gradient)
        return [Bucket(tuple(group), max(each.ready for each in group)) for group in groups.values()]
    sizes = ((graph.tensors[each.tensor].dtype, int(graph.storages[each.storage].nbytes)) for each in own)
    found = [tuple(own[number] for number in bucket) for bucket in buckets_of(sizes, limit)]
    ready = itertools.accumulate((max(each.ready for each in group) for group in found), max)
    return [Bucket(group, at) for group, at in zip(found, ready, strict=True)]


def average_gradients(graph: Graph, replicas: Replicas, limit: int = BUCKET_BYTES) -> Graph:
    """``graph`` with an all-reduce of every bucket as it is ready, in place: gradients are views of their bucket."""
    draft = Draft(graph)
    for bucket in buckets(graph, replicas, limit):
        like = graph.ops[bucket.ready]
        draft.insert(bucket.ready + 1, *scaled(draft, bucket, replicas, like))
        if replicas.ranks > 1:
            draft.insert(bucket.ready + 1, all_reduce_bucket(draft, bucket, like, replicas.group))
    return draft.finished()


def average_after(graph: Graph, replicas: Replicas) -> tuple[Graph, int, int]:
    """``graph`` with an all-reduce of every gradient of its own, all of them between the backward pass and the update;
    the first of them, and how many there are.

    They are ops of the update, so that they run once for several micro-batches. Raises DegreesError if an op of the
    optimizer uses a gradient before.
    """
    after = graph.index.backward_end
    own = gradients(graph, replicas)
    storages = {each.storage for each in own}
    for index, op in enumerate(graph.ops[:after]):
        if op.phase is Phase.OPTIMIZER and not storages.isdisjoint(graph.index.touches[index]):
            raise DegreesError(
                f"op {index} ({graph[index].name}) of the optimizer uses a gradient before the end of the backward "
                "pass: there is no point at which replicas could exchange all of them"
            )
    draft = Draft(graph)
    for each in own:
        like = msgspec.structs.replace(graph.ops[each.ready], phase=Phase.OPTIMIZER)
        draft.insert(after, all_reduce_bucket(draft, Bucket((each,), each.ready), like, replicas.group))
    return draft.finished(), after, len(own)


def scaled(draft: Draft, bucket: Bucket, replicas: Replicas, like: Op) -> list[Op]:
    """The op that multiplies the gradients of a bucket; none for a factor of 1."""
    if replicas.scale == 1:
        return []
    arguments = {"self": tuple(Hole(each.tensor) for each in bucket.gradients), "scalar": replicas.scale}
    return [draft.op("aten._foreach_mul_.Scalar", arguments, like=like)]


def all_reduce_bucket(draft: Draft, bucket: Bucket, like: Op, group: str = GROUP) -> Op:
    """The all-reduce of a bucket."""
    tensors = tuple(Hole(each.tensor) for each in bucket.gradients)
    return draft.collective("allreduce_coalesced_", {"tensors": tensors}, group, "avg", like=like, async_op=True)
