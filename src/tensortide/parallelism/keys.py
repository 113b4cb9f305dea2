"""Attention in a step whose sequences are divided: which dimensions are keys, needed whole, and which are queries.

Queries and keys are one axis, that of the tokens, from which both are made. To tell them apart, the sequence is taken
apart wherever keys and queries meet (the operands of products that have it twice, and of fused kernels), and where
masks come in. The dimension along which a softmax works is then one of keys, and so is each that is tied to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.graph.model import Graph, Op
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.draft import Draft, replace
from tensortide.parallelism.exchange import stand_in
from tensortide.parallelism.rules import factors
from tensortide.parallelism.sites import base_name, holes_of

ATTENTION = "_scaled_dot_product_"
_SOFTMAX = ("_softmax", "_safe_softmax", "_softmax_backward_data")


class Exchanges(NamedTuple):
    """For a product of queries and keys: the operands that are gathered, and whether its result is scattered, each with
    the dimension."""

    gathered: dict[int, int]
    scattered: int | None


@dataclass(slots=True)
class Keys:
    """The dimensions of keys among those of ``axis``, the tokens, in an analysed step.

    ``given`` are tensors that all ranks have whole; ``exchanges`` is by op, for products outside fused kernels.
    """

    analysis: Analysis
    axis: Axis
    given: frozenset[int]
    exchanges: dict[int, Exchanges] = field(init=False)
    _apart: Analysis = field(init=False)
    _read: dict[tuple[int, int], int] = field(default_factory=dict)
    _made: dict[int, int] = field(default_factory=dict)
    _keys: frozenset[Axis] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.analysis.graph
        met = {i for i, op in enumerate(graph.ops) if self._meets(op)}
        self._apart = analyzed(self._taken_apart(met))
        self._keys = frozenset(axis for index, op in enumerate(graph.ops) for axis in self._needed(index, op))
        self.exchanges = {index: self._exchanges(index) for index in sorted(met)}

    def dimensions(self, tensor: int) -> list[int]:
        """The dimensions of a tensor of the step that have the sequence."""
        axes, dims = self.analysis.axes, self.analysis.dims[tensor]
        return [dim for dim, axis in enumerate(dims) if self.axis in axes.leaves([axis])]

    def queries(self, index: int, slot: int) -> list[int]:
        """The dimensions of an operand that have the sequence and are none of keys."""
        tensor = self.analysis.graph.ops[index].inputs[slot]
        return [dim for dim in self.dimensions(tensor) if not self._of_keys(self._read.get((index, slot), tensor), dim)]

    def reads_keys(self, index: int, slot: int) -> bool:
        """Return whether an operand has a dimension of keys."""
        tensor = self.analysis.graph.ops[index].inputs[slot]
        return len(self.queries(index, slot)) < len(self.dimensions(tensor))

    def _of_keys(self, tensor: int, dim: int) -> bool:
        return not self._keys.isdisjoint(self._apart.axes.leaves([self._apart.dims[tensor][dim]]))

    def _meets(self, op: Op) -> bool:
        """Return whether an op is a product of which a factor or the result has the sequence twice."""
        met = factors(self.analysis.graph.calls[op.call])
        tensors = [*(op.inputs[slot] for slot in met), *op.outputs]
        return bool(met) and any(len(self.dimensions(tensor)) > 1 for tensor in tensors)

    def _taken_apart(self, met: set[int]) -> Graph:
        """The step in which what products and kernels read, and all that is given, have a sequence of their own."""
        graph = self.analysis.graph
        draft = Draft(graph)
        for index, op in enumerate(graph.ops):
            name = base_name(graph.calls[op.call].op)
            kernel = name.startswith(ATTENTION)
            read = factors(graph.calls[op.call]) if index in met else range(len(op.inputs)) if kernel else ()
            inputs = list(op.inputs)
            for slot, tensor in enumerate(op.inputs):
                dims = self.dimensions(tensor)
                comes_in = tensor in self.given and not self.given.issuperset(op.outputs or (-1,))
                if comes_in or (slot in read and len(dims) == 1):
                    inputs[slot] = self._read[index, slot] = _apart(draft, index, op, tensor, dims)
            new = {t: draft.twin(t) for t in op.outputs if (kernel or index in met) and len(self.dimensions(t)) == 1}
            self._made.update(new)
            ops = [replace(op, inputs=tuple(inputs), outputs=tuple(new.get(t, t) for t in op.outputs))]
            for tensor, made in new.items():
                ops.append(stand_in(draft, "part_along", [made], [tensor], self.dimensions(tensor)[0], op))
            if ops != [op]:
                draft.replaced[index] = ops
        return draft.finished()

    def _needed(self, index: int, op: Op) -> list[Axis]:
        """The axes of keys that an op needs whole: those along which a softmax works, and keys of fused kernels."""
        call = self.analysis.graph.calls[op.call]
        name, axes = base_name(call.op), self._apart.axes
        if name in _SOFTMAX:
            dim = dict(call.arguments)["dim"]
            assert isinstance(dim, int)
            tensor = op.inputs[0]
            dim %= len(self._apart.dims[tensor])
            return axes.leaves([self._apart.dims[tensor][dim]]) if dim in self.dimensions(tensor) else []
        if not name.startswith(ATTENTION):
            return []
        slot = holes_of(call).index("key")
        tensor = self._read.get((index, slot), op.inputs[slot])
        return axes.leaves([self._apart.dims[tensor][2]])

    def _exchanges(self, index: int) -> Exchanges:
        """The exchanges of a product: the factor with keys is gathered; a result with keys is summed and scattered."""
        graph = self.analysis.graph
        op = graph.ops[index]
        gathered = {}
        for slot in factors(graph.calls[op.call]):
            dims = self.dimensions(op.inputs[slot])
            if len(dims) == 1 and self._of_keys(self._read[index, slot], dims[0]):
                gathered[slot] = dims[0]
        dims = self.dimensions(op.outputs[0])
        scattered = dims[0] if len(dims) == 1 and self._of_keys(self._made[op.outputs[0]], dims[0]) else None
        return Exchanges(gathered, scattered)


def _apart(draft: Draft, index: int, op: Op, tensor: int, dims: list[int]) -> int:
    """A copy of ``tensor`` whose ``dims`` have axes of their own."""
    for dim in dims:
        made = draft.fresh(tensor, draft.tensors[tensor].shape)
        draft.insert(index, stand_in(draft, "part_along", [tensor], [made], dim, op))
        tensor = made
    return tensor
