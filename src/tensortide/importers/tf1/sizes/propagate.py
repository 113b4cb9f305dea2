"""Shapes and small values through a whole graph: every node's function once, in order, again while that helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.expr import Expr, constant
from tensortide.importers.tf1.optypes import EXITS, MERGES, NEXT
from tensortide.importers.tf1.program import MetaGraphError, Shape, stated_shapes
from tensortide.importers.tf1.reading.link import Linked
from tensortide.importers.tf1.shapes import TABLE
from tensortide.importers.tf1.shapes.table import Op, State, Tensor, Unknown
from tensortide.importers.tf1.sizes.loops import counted_exit
from tensortide.importers.tf1.sizes.unify import Contradiction, Origin, Sizes

__all__ = ["Bindings", "Propagated", "propagated"]

MOST_PASSES = 4
MOST_RESTARTS = 8

Bindings = Sequence[tuple[re.Pattern[str], tuple[Expr, ...]]]
"""Sizes that the caller has named: dims of the tensors, or elements of the whole-number constants, of matching
nodes."""


@dataclass(slots=True)
class Propagated:
    """The facts known of every output of every node. ``unknown`` are the nodes whose function had too little to go by,
    ``bound`` the patterns that matched something."""

    tensors: list[list[Tensor]]
    sizes: Sizes
    state: State
    unknown: set[int] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)


def propagated(graph: Linked, bindings: Bindings, exact: bool) -> Propagated:
    """Run every node's shape function until nothing more is learnt. Raises MetaGraphError where shapes do not fit."""
    run = _Run(graph, bindings, exact, set())
    for _ in range(MOST_RESTARTS):
        if run.settled():
            break
        run = _Run(graph, bindings, exact, run.result.state.varying)
    try:
        run.result.sizes.settle()
    except Contradiction as error:
        raise graph.graph.fail(f"sizes do not fit: {error}") from None
    return run.result


class _Run:
    def __init__(self, graph: Linked, bindings: Bindings, exact: bool, varying: set[tuple[int, int]]) -> None:
        self.graph = graph
        self.bindings = bindings
        self.exact = exact
        self.result = Propagated([[] for _ in graph.nodes], Sizes(), State(varying=set(varying)))
        self.counts = _output_counts(graph)
        self.targets = {
            ref.node: i for i, node in enumerate(graph.nodes) if node.type in MERGES for ref in graph.inputs[i]
            if graph.nodes[ref.node].type in NEXT
        }  # fmt: skip

    def settled(self) -> bool:
        """Run passes; False where a loop variable turned out to change its shape: the caller starts again."""
        before = set(self.result.state.varying)
        missing = len(self.graph.nodes) + 1
        for _ in range(MOST_PASSES):
            self.result.unknown = set()
            for i in self.graph.order:
                self._visit(i)
            if len(self.result.unknown) >= missing or not self.result.unknown or self.result.state.varying != before:
                break
            missing = len(self.result.unknown)
        return self.result.state.varying == before

    def _visit(self, i: int) -> None:
        node = self.graph.nodes[i]
        try:
            tensors = self._inferred(i)
            self._unify_with(i, tensors)
            if i in self.targets:
                self._close(self.targets[i], tensors[0].shape)
        except Contradiction as error:
            raise self._fail(i, f"sizes do not fit: {error}") from None
        except IndexError:
            raise self._fail(i, "it has too few inputs, or an input has too few elements") from None
        except (ArithmeticError, ValueError) as error:
            raise self._fail(i, f"its shape cannot be computed: {error}") from None
        self.result.tensors[i] = tensors
        if node.type in EXITS:
            self.result.tensors[i] = [counted_exit(self.graph, self.result.tensors, self.result.sizes, i)]

    def _fail(self, i: int, text: str) -> MetaGraphError:
        node = self.graph.nodes[i]
        return self.graph.graph.fail(f"({node.type}) {text}", node.name)

    def _op(self, i: int) -> Op:
        node, refs = self.graph.nodes[i], self.graph.inputs[i]
        if node.type in MERGES:
            refs = tuple(ref for ref in refs if self.graph.nodes[ref.node].type not in NEXT)
        inputs = [self._tensor(ref.node, ref.output) for ref in refs]
        loops = len(refs) < len(self.graph.inputs[i])
        return Op(
            i, node.name, node.type, node.attributes, inputs, self.counts[i], self.result.sizes, self.result.state,
            self.exact, loops )  # fmt: skip

    def _tensor(self, node: int, output: int) -> Tensor:
        tensors = self.result.tensors[node]
        return tensors[output] if output < len(tensors) else Tensor()

    def _inferred(self, i: int) -> list[Tensor]:
        op = self._op(i)
        function = TABLE.get(op.type)
        tensors: list[Tensor] = []
        try:
            if function is not None:
                found = function(op)
                tensors = (
                    list(found) if isinstance(found, list) else [found if isinstance(found, Tensor) else Tensor(found)]
                )
        except Unknown:
            self.result.unknown.add(i)
            tensors = [Tensor()]
        tensors += [Tensor()] * (self.counts[i] - len(tensors))
        tensors = [self._completed(op, k, tensor) for k, tensor in enumerate(tensors)]
        for pattern, dims in self.bindings:
            if pattern.fullmatch(op.name) and tensors:
                self.result.bound.add(pattern.pattern)
                tensors[0] = _bound(op, tensors[0], dims)
        return tensors

    def _completed(self, op: Op, k: int, tensor: Tensor) -> Tensor:
        """With what the file states: a shape for one that is not known, numbers for sizes that have none."""
        stated = dict(enumerate(stated_shapes(op.attributes))).get(k)
        if not isinstance(stated, tuple) or len(stated) > 254:
            return tensor
        if tensor.shape is None:
            return Tensor(op.stored(k), tensor.values, tensor.handle)
        if len(stated) != len(tensor.shape):
            return tensor
        for d, (n, dim) in enumerate(zip(stated, tensor.shape, strict=True)):
            if isinstance(n, int) and n >= 0 and dim.value is None and not op.sizes.stored(dim):
                own = constant(n) if n < 2 else op.sizes.new(f"{op.name}:{k}::dim_{d}:stored", n, Origin.DERIVED)
                op.equal(dim, own)
        return tensor

    def _unify_with(self, i: int, tensors: list[Tensor]) -> None:
        """Unify shapes with those that an earlier pass found."""
        for old, new in zip(self.result.tensors[i], tensors, strict=False):
            if old.shape is not None and new.shape is not None and len(old.shape) == len(new.shape):
                for a, b in zip(old.shape, new.shape, strict=True):
                    self.result.sizes.equal(a, b)

    def _close(self, merge: int, shape: Shape | None) -> None:
        """Unify the shapes of a loop variable before and after a trip; dims for which that is impossible vary."""
        entered = self._tensor(merge, 0).shape
        if entered is None or shape is None:
            return
        varying = self.result.state.varying
        if len(entered) != len(shape):
            raise Contradiction(f"{len(entered)} dimensions enter the loop and {len(shape)} come back")
        for d, (a, b) in enumerate(zip(entered, shape, strict=True)):
            if (merge, d) not in varying:
                try:
                    self.result.sizes.equal(a, b)
                except Contradiction:
                    varying.add((merge, d))


def _output_counts(graph: Linked) -> list[int]:
    """Count the outputs of each node, by what is stored of it and read from it."""
    counts = [len(stated_shapes(node.attributes)) for node in graph.nodes]
    for refs in graph.inputs:
        for ref in refs:
            counts[ref.node] = max(counts[ref.node], ref.output + 1)
    return counts


def _bound(op: Op, tensor: Tensor, dims: tuple[Expr, ...]) -> Tensor:
    """Return the tensor with the sizes that the caller gave. Raises Contradiction where the file has other ones."""
    if op.type == "Const" and tensor.values is not None:
        if len(dims) != len(tensor.values):
            raise Contradiction(f"{len(dims)} bound sizes and {len(tensor.values)} elements")
        return Tensor(tensor.shape, tuple(_named(op, *pair) for pair in zip(tensor.values, dims, strict=True)))
    if tensor.shape is None or len(dims) != len(tensor.shape):
        raise Contradiction(
            f"{len(dims)} bound sizes and {None if tensor.shape is None else len(tensor.shape)} dimensions"
        )
    shape = tuple(_named(op, *pair) for pair in zip(tensor.shape, dims, strict=True))
    if tensor.handle >= 0 and op.type == "VarHandleOp":
        op.state.elements[op.number] = shape
    return Tensor(shape, tensor.values, tensor.handle)


def _named(op: Op, stored: Expr, given: Expr) -> Expr:
    for name in sorted(given.symbols):
        op.sizes.new(name, None, Origin.USER)
    number = stored.value
    if not isinstance(number, int):
        op.equal(stored, given)
    elif number != -1:  # -1 is "the rest", of which the caller may know more
        op.sizes.state(given, number)
    return given
