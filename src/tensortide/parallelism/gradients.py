"""Gradients that data-parallel ranks combine: when each is ready, and the buckets in which they travel."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from tensortide.graph.collectives import PROCESS_GROUP
from tensortide.graph.model import Const, Graph, Op, Phase, Role
from tensortide.parallelism.draft import Draft, Hole
from tensortide.timelines.data_parallel import BUCKET_BYTES

GROUP = "data"
"""Name of the process group of data parallelism."""


class Gradient(NamedTuple):
    """A gradient of a step: its storage, a tensor of all of it, and the op in the backward pass that completes it."""

    storage: int
    tensor: int
    ready: int


class Bucket(NamedTuple):
    """Gradients that are combined at once, after the op at ``ready``."""

    gradients: tuple[Gradient, ...]
    ready: int


def gradients(graph: Graph) -> list[Gradient]:
    """The gradients that the backward pass writes, in the order in which they are ready."""
    named = {graph.tensors[e.tensor].storage: e.tensor for e in graph.named if e.role is Role.GRADIENT}
    ready: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.BACKWARD:
            for storage in (*graph.index.allocated[index], *graph.index.writes[index]):
                if storage in named:
                    ready[storage] = index
    found = [Gradient(storage, named[storage], index) for storage, index in ready.items()]
    return sorted(found, key=lambda gradient: (gradient.ready, gradient.storage))


def buckets(
    graph: Graph, limit: int = BUCKET_BYTES, unit: Callable[[Gradient], Hashable] | None = None
) -> list[Bucket]:
    """Buckets of at most ``limit`` bytes (one gradient alone may be larger), in order; with ``unit`` one for each unit,
    when its last gradient is ready."""
    found: list[list[Gradient]] = []
    if unit is not None:
        groups: dict[Hashable, list[Gradient]] = {}
        for gradient in gradients(graph):
            groups.setdefault(unit(gradient), []).append(gradient)
        found = list(groups.values())
    else:
        size = limit
        for gradient in gradients(graph):
            nbytes = int(graph.storages[gradient.storage].nbytes)
            if not found or size + nbytes > limit:
                found.append([])
                size = 0
            found[-1].append(gradient)
            size += nbytes
    return [Bucket(tuple(group), max(each.ready for each in group)) for group in found]


def average_gradients(graph: Graph, limit: int = BUCKET_BYTES) -> Graph:
    """``graph`` with an all-reduce of every bucket as it is ready, in place: gradients are views of their bucket."""
    draft = Draft(graph)
    for bucket in buckets(graph, limit):
        draft.insert(bucket.ready + 1, all_reduce_bucket(draft, bucket, graph.ops[bucket.ready]))
    return draft.finished()


def all_reduce_bucket(draft: Draft, bucket: Bucket, like: Op) -> Op:
    """The all-reduce of a bucket."""
    arguments = {"tensors": tuple(Hole(each.tensor) for each in bucket.gradients), **collective_arguments("avg")}
    return draft.op("c10d.allreduce_coalesced_.default", arguments, like=like, mutated=["tensors"])


def collective_arguments(how: str | None = None, group: str = GROUP) -> dict[str, object]:
    """The arguments of a collective beside its tensors."""
    reduce_op: dict[str, object] = {} if how is None else {"reduce_op": Const("opaque", how)}
    return {"process_group": Const("opaque", f"{PROCESS_GROUP}{group}"), **reduce_op, "async_op": True}
