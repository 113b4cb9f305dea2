"""Experts stacked in one parameter: the parameters of a step, the ops between their products, and their tokens.

An expert is an index of a parameter of three dimensions that is one factor of a batched or grouped product. The region
of its layer, in the forward and in the backward pass, is what lies between such products: element by element, or views.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensortide.dtypes import Kind, is_float, kind_of
from tensortide.graph.model import Role
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.experts.local_ops import SUMS, is_reshaped, is_view, readers_of
from tensortide.parallelism.rules import rule_of
from tensortide.parallelism.rules.pointwise import pointwise
from tensortide.parallelism.sites import base_name

PRODUCTS = ("bmm", "baddbmm", "_grouped_mm")
_JOINED = ("cat", "glu", "glu_backward")


@dataclass(slots=True)
class StackedExperts:
    """The experts of an analysed step. ``axes`` is the axis of each parameter of experts, by its name; ``products`` and
    ``region`` are ops, by index."""

    analysis: Analysis
    axes: dict[str, Axis] = field(init=False)
    products: set[int] = field(init=False)
    region: set[int] = field(init=False)
    weights: frozenset[Axis] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.analysis.graph
        trained = [e for e in graph.named if e.role is Role.PARAMETER and e.trainable]
        self.weights = frozenset(a for e in trained for a in self.analysis.all_leaves(e.tensor))
        first = {e.name: self._first(e.tensor) for e in trained if len(graph.tensors[e.tensor].shape) == 3}
        reached = {storage for op in self._named(PRODUCTS) for storage in graph.index.reads[op]}
        owners = {e.name: graph.index.owner[e.tensor] for e in trained}
        self.axes = {name: axis for name, axis in first.items() if axis is not None and owners[name] in reached}
        known = set(self.axes.values())
        self.products = {op for op in self._named(PRODUCTS) if any(self._first(t) in known for t in self._matrices(op))}
        self.region = self._between() if self.products else set()

    def _named(self, names: Iterable[str]) -> list[int]:
        graph = self.analysis.graph
        return [i for i, op in enumerate(graph.ops) if base_name(graph.calls[op.call].op) in names]

    def _matrices(self, op: int) -> list[int]:
        """The tensors of three dimensions of an op."""
        graph = self.analysis.graph
        return [t for t in (*graph.ops[op].inputs, *graph.ops[op].outputs) if len(graph.tensors[t].shape) == 3]

    def _first(self, tensor: int) -> Axis | None:
        """The outermost axis of a tensor."""
        dims = self.analysis.dims[tensor]
        return next(iter(self.analysis.axes.leaves(dims[:1])), None)

    def of_tokens(self, tensor: int) -> bool:
        """Return whether a tensor has rows of tokens, not of weights alone."""
        floating = is_float(self.analysis.graph.tensors[tensor].dtype)
        return floating and not self.weights.issuperset(self.analysis.all_leaves(tensor))

    def _local(self, op: int) -> bool:
        """Return whether an op works on every row alone: element by element, a view, or joined along its rows."""
        graph = self.analysis.graph
        call = graph.calls[graph.ops[op].call]
        name = base_name(call.op)
        if is_view(graph, graph.ops[op]):
            return True
        return rule_of(call.op, call.tags) is pointwise or name in _JOINED

    def _between(self) -> set[int]:
        """Products of experts and the ops on a path of local ones from one to another, and what follows them as it is
        the same for tokens in any place: sums of results, views of them that nothing else reads."""
        graph = self.analysis.graph
        region = self.products | (self._connected(backward=False) & self._connected(backward=True))
        made = {t for op in region for t in graph.ops[op].outputs if self.of_tokens(t)}
        for index, op in enumerate(graph.ops):
            name = base_name(graph.calls[op.call].op)
            same = bool(op.outputs) and set(op.outputs) <= set(op.inputs)  # a view that changes nothing
            if index not in region and (same or name in SUMS) and made.issuperset(op.inputs or (-1,)):
                region.add(index)
                made.update(op.outputs)
        readers = readers_of(graph, range(len(graph.ops)))
        for index, op in reversed(tuple(enumerate(graph.ops))):
            others = {i for t in op.outputs for i in readers.get(t, ())} - {index}
            turned = is_reshaped(graph, op) and not set(op.outputs) <= set(op.inputs)
            if turned and others and others <= region and not any(map(self._joined, op.inputs)):
                region.add(index)
        return region

    def _connected(self, *, backward: bool) -> set[int]:
        """Local ops that read what a product of experts makes, directly or through others like them; ``backward`` those
        whose results one reads."""
        ops = tuple(enumerate(self.analysis.graph.ops))
        tensors: set[int] = set()
        found: set[int] = set()
        for index, op in reversed(ops) if backward else ops:
            met, others = (op.outputs, op.inputs) if backward else (op.inputs, op.outputs)
            if index in self.products or (self._local(index) and not tensors.isdisjoint(met)):
                found.add(index)
                tensors.update(t for t in others if self.of_tokens(t) and not self._joined(t))
        return found

    def _joined(self, tensor: int) -> bool:
        """Return whether experts and their slots are one dimension, in which slots cannot grow."""
        leaves = self.analysis.axes.leaves(self.analysis.dims[tensor][:1])
        return len(leaves) > 1 and leaves[0] in self.axes.values()

    def in_slots(self, tensor: int) -> bool:
        """Return whether tokens lie in slots of each expert, (experts, slots, ...), not in rows sorted by expert."""
        return self._first(tensor) in self.axes.values()

    def rows(self, op: int) -> int:
        """Rows of tokens in a grouped product, 0 in one of slots."""
        graph = self.analysis.graph
        inputs = graph.ops[op].inputs
        offsets = [t for t in inputs if kind_of(graph.tensors[t].dtype) is Kind.INTEGER]
        if not offsets:
            return 0
        left = graph.tensors[inputs[0]].shape
        return left[1] if all(len(graph.tensors[t].shape) == 2 for t in inputs[:2]) else left[0]

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters of experts, those included that are tied to one."""
        graph, owner = self.analysis.graph, self.analysis.graph.index.owner
        owners = {owner[e.tensor] for e in graph.named if e.name in self.axes}
        return frozenset(e.name for e in graph.named if owner[e.tensor] in owners and e.role is Role.PARAMETER)
