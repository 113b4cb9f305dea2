"""The Graph of one rank of a tensor-parallel group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import Division
from tensortide.parallelism.draft import Draft, Hole, compacted
from tensortide.parallelism.exchange import PREFIX, along, replaced
from tensortide.parallelism.local import LocalSizes
from tensortide.parallelism.partials import Partials
from tensortide.parallelism.rules.products import CONVOLUTIONS
from tensortide.parallelism.sequence import SequenceParts, token_axis
from tensortide.parallelism.sites import base_name, located
from tensortide.parallelism.tensor import Choice, Shardable, chosen
from tensortide.parallelism.vocabulary import Sharded

GROUP = "tensor"
"""Name of the process group of tensor parallelism."""

replace = msgspec.structs.replace


class TensorParallel(NamedTuple):
    """The Graph of rank ``rank``, what was chosen, and how the step was divided."""

    graph: Graph
    choice: Choice
    division: Division


def tensor_parallel(
    step: Shardable, ranks: int, rank: int = 0, *, sequence: bool = False, group: str = GROUP
) -> TensorParallel:
    """Shard an analyzed step among ``ranks`` of ``group``; ``sequence``: along the sequence what they do not divide
    otherwise.

    Raises DegreesError if they do not divide it.
    """
    analysis, choice = step.analysis, chosen(step, ranks)
    if sequence:
        analysis, choice = _along_sequence(analysis, choice, ranks)
    sizes = LocalSizes(analysis, choice.axes, ranks)
    draft = Draft(sizes.graph())
    replaced(draft, partial(along, draft, GROUP, ranks, rank))
    walk = _Walk(draft, sizes, Partials(draft, group, ranks), ranks, rank)
    for index in range(len(analysis.graph.ops)):
        walk.op(index)
    walk.end()
    return TensorParallel(compacted(draft.finished()), choice, Division(analysis, choice.axes, ranks, group))


def _along_sequence(analysis: Analysis, choice: Choice, ranks: int) -> tuple[Analysis, Choice]:
    """The step with exchanges of parts of its sequences, and the axes to divide with them: those of ``choice``, by the
    parameters that have them, and the parts of sequences."""
    tokens = token_axis(analysis)
    if analysis.axes.size[tokens] % ranks:
        raise DegreesError(f"tokens of a rank: seq / tensor = {analysis.axes.size[tokens]}/{ranks} is no whole number")
    made = SequenceParts(analysis, choice.axes, tokens)
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
    for axis in parts:
        for index, why in whole.axes.needs(axis).items():
            where = "" if index < 0 or located(whole.graph, index) in why else f"{located(whole.graph, index)}: "
            raise DegreesError(f"sequence: tokens are not divided among {ranks} tensor ranks: {where}{why}")
    return whole, choice._replace(axes=frozenset(axes), replicated=())


class _Walk:
    """Replaces the ops that a sharded axis changes, and inserts all-reduces."""

    def __init__(self, draft: Draft, sizes: LocalSizes, partials: Partials, ranks: int, rank: int) -> None:
        self.draft, self.sizes, self.partials = draft, sizes, partials
        self.ranks, self.rank = ranks, rank

    def op(self, index: int) -> None:
        """Meet one op of the step."""
        op = self.draft.graph.ops[index]
        name = base_name(self.draft.calls[op.call].op)
        if name == "scatter_along":
            for tensor in op.inputs:
                self.partials.pending.pop(self.draft.tensors[tensor].storage, None)  # it sums them itself
            return
        if self.draft.calls[op.call].op.startswith(PREFIX):
            self.partials.read(index, op, {})
            return
        made = self._partial_outputs(index)
        self.partials.read(index, op, made)
        parts = self._replaced(index, op, name)
        if parts is not None:
            self.draft.replaced[index] = parts
        elif made and name in ("addmm", "baddbmm"):
            self.draft.replaced[index] = [self._shared_addend(op)]
        elif made and name in CONVOLUTIONS and len(op.inputs) > 2:
            self.draft.replaced[index] = self._shared_bias(op)

    def end(self) -> None:
        """Complete what outlives the step."""
        ops = self.draft.graph.ops
        kept = {
            storage
            for storage in self.partials.pending
            if self.draft.storages[storage].death is None and self.draft.storages[storage].role is not Role.TEMPORARY
        }
        if ops:
            self.partials.complete(len(ops), kept, ops[-1])

    def _partial_outputs(self, index: int) -> dict[int, str]:
        axes = self.sizes.analysis.axes
        found = self.sizes.analysis.partials.get(index, ())
        return {p.output: p.how for p in found if any(a in self.sizes.chosen for a in axes.leaves(p.axes))}

    def _shared_bias(self, op: Op) -> list[Op]:
        """A convolution that adds this rank's share of its bias, so that the sum over ranks has it once."""
        data, weight, bias = op.inputs
        share = self.draft.fresh(bias, self.draft.tensors[bias].shape)
        arguments = {"self": Hole(bias), "other": 1 / self.ranks}
        return [
            self.draft.op("aten.mul.Tensor", arguments, [share], like=op),
            replace(op, inputs=(data, weight, share)),
        ]

    def _shared_addend(self, op: Op) -> Op:
        """An ``addmm`` that adds this rank's share of what it adds, so that the sum over ranks has it once."""
        call = self.draft.calls[op.call]
        arguments = dict(call.arguments)
        beta = arguments.pop("beta", 1)
        given = (*arguments.items(), ("beta", beta / self.ranks))  # type: ignore[operator]  # a number
        positional = min(call.positional, len(arguments))
        return replace(op, call=self.draft.call(replace(call, arguments=given, positional=positional)))

    def _replaced(self, index: int, op: Op, name: str) -> list[Op] | None:
        """The ops in place of one over a sharded table or sharded classes; None for any other."""
        arguments = dict(self.draft.calls[op.call].arguments)
        if name == "embedding":
            return self._at(op, self._axis(op.inputs[0], 0), Sharded.embedding)
        if name == "embedding_dense_backward":
            return self._at(op, self._axis(op.outputs[0], 0), Sharded.embedding_backward)
        if name in ("_log_softmax", "_log_softmax_backward_data"):
            dim = arguments["dim"]
            assert isinstance(dim, int)
            forward = name == "_log_softmax"
            build = Sharded.log_softmax if forward else Sharded.log_softmax_backward
            return self._at(op, self._axis(op.inputs[0], dim), lambda sharded: build(sharded, dim))
        if name in ("nll_loss_forward", "nll_loss_backward"):
            data = op.inputs[0 if name == "nll_loss_forward" else 1]
            classes = 1 if len(self.draft.tensors[data].shape) > 1 else 0
            build_loss = Sharded.nll_loss if name == "nll_loss_forward" else Sharded.nll_loss_backward
            return self._at(op, self._axis(data, classes), build_loss)
        return None

    def _axis(self, tensor: int, dim: int) -> Axis | None:
        """The sharded axis of a dimension."""
        analysis = self.sizes.analysis
        leaves = analysis.axes.leaves([analysis.dims[tensor][dim]])
        return next((axis for axis in leaves if axis in self.sizes.chosen), None)

    def _at(self, op: Op, axis: Axis | None, build: Callable[[Sharded], list[Op]]) -> list[Op] | None:
        if axis is None:
            return None
        size = self.sizes.local_size(axis)
        return build(Sharded(self.draft, op, self.partials.group, self.rank * size, size))
