"""The Graph of one rank of a tensor-parallel group."""

from __future__ import annotations

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import Asked, RankStep
from tensortide.parallelism.propagate import ALL, Division, Seed
from tensortide.parallelism.sequence import SequenceParts, token_axis
from tensortide.parallelism.sites import located
from tensortide.parallelism.tensor import Choice, Shardable, chosen, shardable
from tensortide.parallelism.tensor_groups import ACROSS, WITHIN, merged

GROUP = "tensor"
"""Name of the process group of tensor parallelism."""


def divide(step: RankStep, asked: Asked) -> RankStep | None:
    """The step of one tensor rank; None if there are no others."""
    degrees, at, shared = asked.degrees, asked.at.tensor, asked.shared
    if degrees.kv_group:
        return shared(tensor_in_groups, step.graph, degrees.tensor, degrees.kv_group, at)
    if degrees.tensor == 1:
        return None
    whole = shared(shardable, shared(analyzed, step.graph))
    return shared(tensor_parallel, whole, degrees.tensor, at, sequence=degrees.sequence > 0)


def tensor_in_groups(graph: Graph, ranks: int, within: int, rank: int) -> RankStep:
    """The step of ``rank`` of ``ranks``, of which ``within`` neighbours share heads of keys and values. Raises
    DegreesError as ``tensor_parallel`` does."""
    outer = tensor_parallel(shardable(analyzed(graph)), ranks // within, rank // within, group=ACROSS)
    inner = tensor_parallel(shardable(analyzed(outer.graph)), within, rank % within, group=WITHIN)
    why = f"{within} ranks share it: "
    shared = tuple(each._replace(why=why + each.why, ranks=within) for each in inner.replicated)
    return outer.then(inner._replace(graph=merged(inner.graph, GROUP), replicated=shared))


def tensor_parallel(
    step: Shardable, ranks: int, rank: int = 0, *, sequence: bool = False, group: str = GROUP
) -> RankStep:
    """Shard an analyzed step among ``ranks`` of ``group``; ``sequence``: along the sequence what they do not divide
    otherwise.

    Raises DegreesError if they do not divide it.
    """
    analysis, choice = step.analysis, chosen(step, ranks)
    if sequence:
        analysis, choice = _along_sequence(analysis, choice, ranks)
    seed = Seed(Division(analysis, choice.axes, ranks, group), rank, combined=ALL)
    return RankStep(seed.graph(), (seed.division,), replicated=choice.replicated, remarks=choice.remarks)


def _along_sequence(analysis: Analysis, choice: Choice, ranks: int) -> tuple[Analysis, Choice]:
    """The step with exchanges of parts of its sequences, and the axes to divide with them: those of ``choice``, by the
    parameters that have them, and the parts of sequences."""
    tokens = token_axis(analysis)
    if analysis.axes.size[tokens] % ranks:
        raise DegreesError(f"tokens of a rank: seq / tensor = {analysis.axes.size[tokens]}/{ranks} is no whole number")
    made = SequenceParts(Division(analysis, choice.axes, ranks, GROUP), tokens)
    whole = analyzed(made.graph())
    axes: set[Axis] = set()
    for entry in analysis.graph.named:
        if entry.role is Role.PARAMETER:
            pairs = zip(analysis.all_leaves(entry.tensor), whole.all_leaves(entry.tensor), strict=True)
            axes.update(new for old, new in pairs if old in choice.axes)
    parts = {a for tensor, dim in made.parts.items() for a in whole.axes.leaves([whole.dims[tensor][dim]])}
    for index, op in enumerate(whole.graph.ops):
        here = [set(whole.all_leaves(t)) for t in (*op.inputs, *op.outputs)]
        if any(not leaves.isdisjoint(parts) and not leaves.isdisjoint(axes) for leaves in here):
            raise DegreesError(
                f"sequence: {located(whole.graph, index)} has tokens that are not told apart from those of products "
                "that tensor ranks divide"
            )
    axes |= parts
    of_tokens = Division(whole, frozenset(parts), ranks, GROUP)
    of_tokens.require(f"sequence: tokens are not divided among {ranks} tensor ranks")
    return whole, choice._replace(axes=frozenset(axes), replicated=())
