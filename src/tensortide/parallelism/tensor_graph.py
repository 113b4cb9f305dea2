"""The Graph of one rank of a tensor-parallel group."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tensortide.graph.model import Graph, Op, Role
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import Division
from tensortide.parallelism.draft import Draft, compacted
from tensortide.parallelism.local import Shards
from tensortide.parallelism.partials import Partials
from tensortide.parallelism.sites import base_name
from tensortide.parallelism.tensor import Choice, chosen
from tensortide.parallelism.vocabulary import Sharded

GROUP = "tensor"
"""Name of the process group of tensor parallelism."""

replace = msgspec.structs.replace


class TensorParallel(NamedTuple):
    """The Graph of rank ``rank``, what was chosen, and how the step was divided."""

    graph: Graph
    choice: Choice
    division: Division


def tensor_parallel(graph: Graph, ranks: int, rank: int = 0) -> TensorParallel:
    """Shard ``graph`` among ``ranks``. Raises DegreesError if they do not divide it."""
    analysis = analyzed(graph)
    choice = chosen(analysis, ranks)
    shards = Shards(analysis, choice.axes, ranks)
    draft = Draft(shards.graph())
    walk = _Walk(draft, shards, Partials(draft, GROUP, ranks), ranks, rank)
    for index in range(len(graph.ops)):
        walk.op(index)
    walk.end()
    return TensorParallel(compacted(draft.finished()), choice, Division(analysis, choice.axes, ranks, GROUP))


class _Walk:
    """Replaces the ops that a sharded axis changes, and inserts all-reduces."""

    def __init__(self, draft: Draft, shards: Shards, partials: Partials, ranks: int, rank: int) -> None:
        self.draft, self.shards, self.partials = draft, shards, partials
        self.ranks, self.rank = ranks, rank

    def op(self, index: int) -> None:
        """Meet one op of the step."""
        op = self.draft.graph.ops[index]
        name = base_name(self.draft.calls[op.call].op)
        made = self._partial_outputs(index)
        self.partials.read(index, op, made)
        parts = self._replaced(index, op, name)
        if parts is not None:
            self.draft.replaced[index] = parts
        elif name == "addmm" and op.outputs and op.outputs[0] in made:
            self.draft.replaced[index] = [self._shared_bias(op)]

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
        axes = self.shards.analysis.axes
        found = self.shards.analysis.partials.get(index, ())
        return {p.output: p.how for p in found if any(a in self.shards.chosen for a in axes.leaves(p.axes))}

    def _shared_bias(self, op: Op) -> Op:
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
        analysis = self.shards.analysis
        leaves = analysis.axes.leaves([analysis.dims[tensor][dim]])
        return next((axis for axis in leaves if axis in self.shards.chosen), None)

    def _at(self, op: Op, axis: Axis | None, build: Callable[[Sharded], list[Op]]) -> list[Op] | None:
        if axis is None:
            return None
        size = self.shards.local_size(axis)
        return build(Sharded(self.draft, op, GROUP, self.rank * size, size))
