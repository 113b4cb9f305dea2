"""Data parallelism and micro-batches: the step on a part of the batch, by propagation from its inputs."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Role
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.draft import compacted
from tensortide.parallelism.local import Shards


class BatchPart(NamedTuple):
    """The Graph of one part of the batch, and the size of the batch that was divided."""

    graph: Graph
    batch: int


def batch_part(graph: Graph, parts: int, dimension: int = 0) -> BatchPart:
    """The step on one of ``parts`` of its batch, which is a ``dimension`` of its inputs.

    The batch is that dimension of the first input, and of all others of the same size. Means over the batch become
    means over the part, as data-parallel replicas compute them.

    Raises:
        DegreesError: the step has no such inputs, the parts do not divide the batch, or an op mixes it so that no
            equal part of it can be computed; the message names the op.
    """
    analysis = analyzed(graph)
    inputs = [e.tensor for e in graph.named if e.role is Role.INPUT and len(graph.tensors[e.tensor].shape) > dimension]
    if not inputs:
        raise DegreesError(f"the batch cannot be divided: the step has no inputs with a dimension {dimension}")
    batch = int(graph.tensors[inputs[0]].shape[dimension])
    if batch % parts:
        raise DegreesError(f"batch {batch} / {parts} parts (data x micro_batches) is not whole")
    cuts = analysis.axes.cuts
    chosen: set[Axis] = set()
    for tensor in inputs:
        if graph.tensors[tensor].shape[dimension] == batch and batch > 1:
            outer = analysis.axes.leaves([analysis.dims[tensor][dimension]])[0]
            size = analysis.axes.size[outer]
            if outer in cuts:
                raise DegreesError(
                    f"dimension {dimension} of the inputs, of {batch}, cannot be divided: {cuts[outer]}. Is the batch "
                    "another (batch_dimension)? A step captured with the batch of one rank needs no division (is_local)"
                )
            if size % parts:
                raise DegreesError(f"batch {batch} is {size} groups of {batch // size}: {size} / {parts} is not whole")
            chosen.add(outer)
    return BatchPart(compacted(Shards(analysis, chosen, parts).graph()), batch)
