"""Local forms of ops that do not just work on smaller tensors.

An op over a sharded table or sharded classes (look-ups, softmax, cross-entropy) is taken apart into ops that give
exactly the whole op's result: what another rank holds is masked, and statistics of each row are combined. Collectives
are on one number per row. A product that makes a partial sum adds its share of what it adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensortide.graph.model import Call, Op, Tensor
from tensortide.parallelism.draft import Builder, Draft, Hole, replace
from tensortide.parallelism.local import LocalSizes
from tensortide.parallelism.partials import all_reduce
from tensortide.parallelism.rules.products import CONVOLUTIONS
from tensortide.parallelism.sites import base_name

ADDENDS = {"addmm": "self", "baddbmm": "self", **dict.fromkeys(CONVOLUTIONS, "bias")}
"""Products that add one of their arguments, which the parts of a sum have only once together."""


def over(call: Call, op: Op, tensors: Sequence[Tensor]) -> tuple[int, int] | None:
    """The tensor with the rows of a table or the classes that an op works over, and their dimension; None for any other
    op."""
    name = base_name(call.op)
    if name == "embedding":
        return op.inputs[0], 0
    if name == "embedding_dense_backward":
        return op.outputs[0], 0
    if name in ("_log_softmax", "_log_softmax_backward_data"):
        dim = dict(call.arguments)["dim"]
        assert isinstance(dim, int)
        return op.inputs[0], dim
    if name.startswith("nll_loss"):
        data = op.inputs[1 if name.endswith("backward") else 0]
        return data, 1 if len(tensors[data].shape) > 1 else 0
    return None


def local_form(draft: Draft, sizes: LocalSizes, group: str, rank: int, op: Op, partial: bool) -> list[Op] | None:
    """The ops that ``rank`` executes in the place of ``op``; None if it does the same on smaller tensors. ``partial``:
    the ranks combine its result."""
    call, analysis = draft.calls[op.call], sizes.analysis
    if (where := over(call, op, draft.tensors)) is not None:
        tensor, dim = where
        leaves = analysis.axes.leaves([analysis.dims[tensor][dim]])
        axis = next((axis for axis in leaves if axis in sizes.chosen), None)
        if axis is None:
            return None
        size = sizes.local_size(axis)
        return Sharded(draft, op, group, rank * size, size).ops(dim)
    name = base_name(call.op)
    if not partial or name not in ADDENDS or len(op.inputs) < 3:
        return None
    return _shared_bias(draft, op, sizes.ranks) if name in CONVOLUTIONS else _shared_addend(draft, op, sizes.ranks)


def _shared_bias(draft: Draft, op: Op, ranks: int) -> list[Op]:
    """A convolution that adds this rank's share of its bias, so that the sum over ranks has it once."""
    data, weight, bias = op.inputs
    share = draft.fresh(bias, draft.tensors[bias].shape)
    arguments = {"self": Hole(bias), "other": 1 / ranks}
    return [draft.op("aten.mul.Tensor", arguments, [share], like=op), replace(op, inputs=(data, weight, share))]


def _shared_addend(draft: Draft, op: Op, ranks: int) -> list[Op]:
    """An ``addmm`` that adds this rank's share of what it adds, so that the sum over ranks has it once."""
    call = draft.calls[op.call]
    arguments = dict(call.arguments)
    beta = arguments.pop("beta", 1)
    given = (*arguments.items(), ("beta", beta / ranks))  # type: ignore[operator]  # a number
    positional = min(call.positional, len(arguments))
    return [replace(op, call=draft.call(replace(call, arguments=given, positional=positional)))]


@dataclass(slots=True)
class Sharded(Builder):
    """Builds the ops that take the place of ``like``; this rank holds ``size`` rows or classes from ``start`` on."""

    group: str
    start: int
    size: int

    def ops(self, dim: int) -> list[Op]:
        """The ops in the place of ``like``, whose rows or classes are dimension ``dim``."""
        name = base_name(self.draft.calls[self.like.call].op)
        if name.startswith("_log_softmax"):
            return self.log_softmax_backward(dim) if name.endswith("data") else self.log_softmax(dim)
        if name.startswith("nll_loss"):
            return self.nll_loss_backward() if name.endswith("backward") else self.nll_loss()
        return self.embedding() if name == "embedding" else self.embedding_backward()

    def fresh(self, like: int, shape: tuple[int, ...], dtype: str = "") -> int:
        return self.draft.fresh(like, shape, dtype=dtype)

    def clamped(self, indices: int) -> tuple[list[Op], int, int]:
        """Ops that move ``indices`` to this shard: the clamped index of each, and whether it lies in the shard."""
        shape = self.draft.tensors[indices].shape
        moved, inside, mask = self.fresh(indices, shape), self.fresh(indices, shape), self.fresh(indices, shape, "bool")
        ops = [
            self.make("sub.Tensor", {"self": Hole(indices), "other": self.start}, moved),
            self.make("clamp.default", {"self": Hole(moved), "min": 0, "max": self.size - 1}, inside),
            self.make("eq.Tensor", {"self": Hole(moved), "other": Hole(inside)}, mask),
        ]
        return ops, inside, mask

    def embedding(self) -> list[Op]:
        """Look up what this shard has, zeros elsewhere: a partial sum."""
        (weight, indices), (out,) = self.like.inputs, self.like.outputs
        ops, inside, mask = self.clamped(indices)
        view, column = self.column(mask)
        looked_up = self.make("embedding.default", {"weight": Hole(weight), "indices": Hole(inside)}, out)
        masked = {"self": Hole(out), "other": Hole(column)}
        return [*ops, looked_up, view, self.make("mul_.Tensor", masked, out)]

    def embedding_backward(self) -> list[Op]:
        """The gradient of this shard's rows."""
        (grad, indices), (out,) = self.like.inputs, self.like.outputs
        ops, inside, mask = self.clamped(indices)
        view, column = self.column(mask)
        kept = self.fresh(grad, self.draft.tensors[grad].shape)
        arguments: dict[str, Any] = dict(self.draft.calls[self.like.call].arguments)
        given = {"grad_output": Hole(kept), "indices": Hole(inside)}
        rows = {name: given.get(name, value) for name, value in arguments.items()} | {"num_weights": self.size}
        masking = self.make("mul.Tensor", {"self": Hole(grad), "other": Hole(column)}, kept)
        return [*ops, view, masking, self.make("embedding_dense_backward.default", rows, out)]

    def _rows(self, dim: int, tensor: int, dtype: str = "") -> int:
        shape = list(self.draft.tensors[tensor].shape)
        shape[dim] = 1
        return self.fresh(tensor, tuple(shape), dtype)

    def log_softmax(self, dim: int) -> list[Op]:
        """Subtract the largest of each row and the logarithm of the sum of exponentials, both over all ranks."""
        (data,), (out,) = self.like.inputs, self.like.outputs
        largest, total, logs = self._rows(dim, data), self._rows(dim, out), self._rows(dim, out)
        powers = self.fresh(out, self.draft.tensors[out].shape)
        return [
            self.make("amax.default", {"self": Hole(data), "dim": (dim,), "keepdim": True}, largest),
            *all_reduce(self.draft, largest, "max", self.group, self.like),
            self.make("sub.Tensor", {"self": Hole(data), "other": Hole(largest)}, out),
            self.make("exp.default", {"self": Hole(out)}, powers),
            self.make("sum.dim_IntList", {"self": Hole(powers), "dim": (dim,), "keepdim": True}, total),
            *all_reduce(self.draft, total, "sum", self.group, self.like),
            self.make("log.default", {"self": Hole(total)}, logs),
            self.make("sub_.Tensor", {"self": Hole(out), "other": Hole(logs)}, out),
        ]

    def log_softmax_backward(self, dim: int) -> list[Op]:
        """The gradient minus the probability times the sum of the gradients of each row over all ranks."""
        (grad, output), (out,) = self.like.inputs, self.like.outputs
        total, chances = self._rows(dim, grad), self.fresh(output, self.draft.tensors[output].shape)
        return [
            self.make("sum.dim_IntList", {"self": Hole(grad), "dim": (dim,), "keepdim": True}, total),
            *all_reduce(self.draft, total, "sum", self.group, self.like),
            self.make("exp.default", {"self": Hole(output)}, chances),
            self.make("mul_.Tensor", {"self": Hole(chances), "other": Hole(total)}, chances),
            self.make("sub.Tensor", {"self": Hole(grad), "other": Hole(chances)}, out),
        ]

    def _local_targets(self, target: int, ignored: int) -> tuple[list[Op], int]:
        """Targets counted from this shard's first class; those of other shards are ``ignored``."""
        ops, inside, mask = self.clamped(target)
        view = self.draft.tensors[target]
        other, local = self.fresh(target, ()), self.fresh(target, view.shape)
        chosen = {"condition": Hole(mask), "self": Hole(inside), "other": Hole(other)}
        return [
            *ops,
            self.draft.factory("full.default", other, {"size": (), "fill_value": ignored}, like=self.like),
            self.make("where.self", chosen, local),
        ], local

    def nll_loss(self) -> list[Op]:
        """The loss of targets in this shard, combined with the others', over the number of targets."""
        call = self.draft.calls[self.like.call]
        arguments: dict[str, Any] = dict(call.arguments)
        data, target = self.like.inputs
        loss, weight = self.like.outputs
        ops, local = self._local_targets(target, int(arguments["ignore_index"]))
        reduction = arguments["reduction"]
        given = arguments | {"self": Hole(data), "target": Hole(local), "reduction": 2 if reduction == 1 else reduction}
        summed = self.draft.op(call.op, given, [loss, weight], like=self.like)
        ops += [summed, *all_reduce(self.draft, loss, "sum", self.group, self.like)]
        if reduction:
            ops += all_reduce(self.draft, weight, "sum", self.group, self.like)
        if reduction == 1:
            mean = {"self": Hole(loss), "other": Hole(weight)}
            ops.append(self.make("div_.Tensor", mean, loss))
        return ops

    def nll_loss_backward(self) -> list[Op]:
        """The gradient at targets in this shard."""
        call = self.draft.calls[self.like.call]
        arguments: dict[str, Any] = dict(call.arguments)
        grad, data, target, weight = self.like.inputs
        ops, local = self._local_targets(target, int(arguments["ignore_index"]))
        given = {"grad_output": Hole(grad), "self": Hole(data), "target": Hole(local), "total_weight": Hole(weight)}
        return [*ops, self.draft.op(call.op, arguments | given, self.like.outputs, like=self.like)]
