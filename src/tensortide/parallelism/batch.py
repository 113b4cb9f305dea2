"""Data parallelism and micro-batches: the step on a part of the batch, by propagation from its inputs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Phase, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import Asked, RankStep
from tensortide.parallelism.gradients import GROUP
from tensortide.parallelism.own_samples import by_part, remarks_of
from tensortide.parallelism.propagate import Division, Seed
from tensortide.parallelism.recorded_sizes import RecordedSizes


class Batch(NamedTuple):
    """A dimension of an input, its number in the Graph."""

    tensor: int
    dimension: int

    @property
    def sequence_dimension(self) -> int:
        """The dimension of sequences: the other of the first two."""
        return 0 if self.dimension else 1


def divide(step: RankStep, asked: Asked) -> RankStep | None:
    """The step on one micro-batch of one replica; None if that is all of it."""
    parts = 1 if asked.is_local else asked.degrees.data * asked.degrees.micro_batches
    if parts == 1:
        return None
    return asked.shared(batch_part, asked.shared(analyzed, step.graph), parts, batch_asked(asked))


def batch_asked(asked: Asked) -> Batch:
    """The batch of the whole step."""
    return asked.shared(batch_of, asked.shared(analyzed, asked.graph), asked.batch_dimension)


def batch_part(analysis: Analysis, parts: int, batch: Batch) -> RankStep:
    """The step on one of ``parts`` of its ``batch``.

    Other inputs are divided where an op ties them to it, or where they have as much in the same dimension. Means over
    the batch become means over the part, as data-parallel replicas compute them, and each replica routes its own tokens
    to experts.

    Raises:
        DegreesError: the parts do not divide the batch, or an op mixes it so that no equal part of it can be computed;
            the message names the op.
    """
    graph, dimension = analysis.graph, batch.dimension
    size = int(graph.tensors[batch.tensor].shape[dimension])
    if size % parts:
        raise DegreesError(f"batch {size} / {parts} parts (data x micro_batches) is not whole")
    cuts = analysis.axes.cuts
    chosen: set[Axis] = set()
    for tensor in inputs_of(graph):
        shape = graph.tensors[tensor].shape
        if len(shape) > dimension and shape[dimension] == size and size > 1:
            outer = analysis.axes.leaves([analysis.dims[tensor][dimension]])[0]
            if outer in cuts and tensor == batch.tensor:
                why = next(analysis.reasons(outer))
                raise DegreesError(
                    f"dimension {dimension} of the inputs, of {size}, cannot be divided: {why}. Is the batch another "
                    "(batch_dimension)? A step captured with the batch of one rank needs no division (is_local)"
                )
            groups = analysis.axes.size[outer]
            if groups % parts:
                raise DegreesError(
                    f"batch {size} is {groups} groups of {size // groups}: {groups} / {parts} is not whole"
                )
            chosen.add(outer)
    counted = frozenset(axis for axis in analysis.axes.followers(chosen) if analysis.axes.size[axis])
    Division(analysis, counted, parts, GROUP).require(
        "elements that values of the batch select cannot be divided", lambda _, index: by_part(graph, index)
    )
    own = remarks_of(analysis, frozenset(chosen), frozenset(chosen | counted), parts)
    chosen |= counted
    sizes = RecordedSizes(analysis, chosen, parts)
    seed = Seed(Division(analysis, frozenset(chosen), parts, GROUP), 0, means=True, adapt=sizes.adapt)
    remarks = (*sizes.remarks("the batch"), *own)
    return RankStep(seed.graph(), (seed.division,), size, size // parts, remarks=remarks)


def inputs_of(graph: Graph) -> list[int]:
    """The tensors that are inputs, in order."""
    return [entry.tensor for entry in graph.named if entry.role is Role.INPUT]


def sequence_of(analysis: Analysis, dimension: int, degree: str) -> tuple[int, list[Axis]]:
    """The first input that has sequences which meet parameters, and the finest axes of their ``dimension``.

    Raises DegreesError, in the name of ``degree``, if no input has any.
    """
    met = axes_met(analysis)

    def sequence(tensor: int) -> list[Axis]:
        return analysis.axes.leaves([analysis.dims[tensor][dimension]])

    with_two = [t for t in inputs_of(analysis.graph) if len(analysis.graph.tensors[t].shape) > 1]
    tensor = next((t for t in with_two if any(met[axis] for axis in sequence(t))), next(iter(with_two), None))
    leaves = [] if tensor is None else sequence(tensor)
    if tensor is None or not leaves:
        raise DegreesError(f"{degree}: the step has no input with a sequence, a second dimension")
    return tensor, leaves


def batch_of(analysis: Analysis, dimension: int | None = None) -> Batch:
    """The batch: a given ``dimension`` of the first input that has it; or the first one, of an input, whose elements no
    op mixes but for what is computed by parts, that is no axis of a parameter, and that most inputs have. Rows of a
    data set, of which the step looks some up, meet no parameter: others come before them.

    Raises DegreesError if no input has any.
    """
    graph, axes = analysis.graph, analysis.axes
    inputs = [t for t in inputs_of(graph) if len(graph.tensors[t].shape) > (dimension or 0)]
    if not inputs:
        raise DegreesError(
            f"the batch cannot be divided: the step has no inputs with a dimension {dimension or 0}. A batch that it "
            "makes itself is found if it has two samples or more and the parameters are whole (not sharded by the "
            "program): else give it as an input, made before the step (FILE.py:FUNCTION)"
        )
    if dimension is not None or graph.tensors[inputs[0]].shape[0] == 1:
        return Batch(inputs[0], dimension or 0)
    weights = {a for e in graph.named if e.role is Role.PARAMETER for a in analysis.all_leaves(e.tensor)}
    outermost = [(Batch(t, dim), axes.leaves([axis])[:1]) for t in inputs for dim, axis in enumerate(analysis.dims[t])]
    free = [(where, found[0]) for where, found in outermost if found and found[0] not in weights]
    numbers = Counter(axis for _, axis in {(where.tensor, axis) for where, axis in free})
    rank = {t: len(graph.tensors[t].shape) for t in inputs}
    mixed, met = _mixed(analysis), axes_met(analysis)

    def order(each: tuple[Batch, Axis]) -> tuple[bool, bool, int, int]:
        where, axis = each
        return axis in mixed, not met[axis], -numbers[axis], -rank[where.tensor]

    for where, axis in sorted(free, key=order):
        if all(op >= 0 and by_part(graph, op) for op in axes.needs(axis)):
            return where
    return next((where for where, axis in free if axis not in axes.cuts), Batch(inputs[0], 0))


def axes_met(analysis: Analysis) -> Counter[Axis]:
    """For each axis the forward ops that read both a parameter and a tensor that has the axis."""
    graph = analysis.graph
    weights = {entry.tensor for entry in graph.named if entry.role is Role.PARAMETER}
    storages = {graph.tensors[tensor].storage for tensor in weights}
    found: Counter[Axis] = Counter()
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.FORWARD and not storages.isdisjoint(graph.index.reads[index]):
            others = (t for t in op.inputs if graph.tensors[t].storage not in storages)
            found.update({axis for tensor in others for axis in analysis.all_leaves(tensor)})
    for axis in {axis for tensor in weights for axis in analysis.all_leaves(tensor)}:
        del found[axis]
    return found


def _mixed(analysis: Analysis) -> frozenset[Axis]:
    """Axes whose elements are summed in the forward pass, into more than a loss: nodes of a graph, not samples."""
    graph, axes = analysis.graph, analysis.axes
    return frozenset(
        axis
        for index, partials in analysis.partials.items()
        if graph.ops[index].phase is Phase.FORWARD
        for each in partials
        if graph.tensors[each.output].shape
        for axis in axes.leaves(each.axes)
    )
