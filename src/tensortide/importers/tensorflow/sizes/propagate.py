"""Shapes and small values through a whole graph: every node's function once, in order, again while that helps."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tensortide.expr import Expr, constant
from tensortide.importers.shapes import ShapeError
from tensortide.importers.tensorflow.optypes import EXITS
from tensortide.importers.tensorflow.program import MetaGraphError, Ref, Shape, stated_shapes
from tensortide.importers.tensorflow.reading.link import Linked
from tensortide.importers.tensorflow.shapes import TABLE
from tensortide.importers.tensorflow.shapes.elementwise import of_elements
from tensortide.importers.tensorflow.shapes.op import Op, State, Tensor, Unknown
from tensortide.importers.tensorflow.sizes.loops import WRITES, Counters
from tensortide.importers.tensorflow.sizes.unify import Origin, Sizes

MOST_PASSES = 4
MOST_RESTARTS = 8

_GRADIENT_SHAPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/(.+)_grad/Shape(?:_(1))?$")

Bindings = Sequence[tuple[re.Pattern[str], tuple[Expr, ...]]]
"""Sizes that the caller has named: dims of the tensors, or elements of the whole-number constants, of matching
nodes."""


def propagated(graph: Linked, bindings: Bindings, exact: bool) -> Propagation:
    """Run every node's shape function until nothing more is learnt. Raises MetaGraphError where shapes do not fit."""
    run = Propagation(graph, bindings, exact)
    for _ in range(MOST_RESTARTS):
        if run.settled():
            break
        run = Propagation(graph, bindings, exact, run.state.varying)
    try:
        run.counters.loops()
        run.tie_gradients()
        run.sizes.settle(last=False)
    except ShapeError as error:
        raise graph.raw.fail(f"sizes do not fit: {error}", run.sizes.place) from None
    return run


class Propagation:
    """The facts known of every output of every node. ``unknown`` are the nodes whose function had too little to go by,
    ``bound`` the patterns that matched something."""

    def __init__(
        self, graph: Linked, bindings: Bindings, exact: bool, varying: Collection[tuple[int, int]] = ()
    ) -> None:
        self.graph, self.bindings, self.exact = graph, bindings, exact
        self.tensors: list[list[Tensor]] = [[] for _ in graph.nodes]
        self.sizes = Sizes()
        self.state = State(varying=set(varying))
        self.unknown: set[int] = set()
        self.bound: set[str] = set()
        self.counters = Counters(graph, self.tensors, self.sizes, self.state)
        self._outputs = [len(stated_shapes(node.attributes)) for node in graph.nodes]
        self._carried: dict[int, int] = {}  # the Merge that each NextIteration leads back to
        for i, node in enumerate(graph.nodes):
            for ref in node.inputs:
                self._outputs[ref.node] = max(self._outputs[ref.node], ref.output + 1)
                if graph.is_back_edge(node, ref):
                    self._carried[ref.node] = i

    def settled(self) -> bool:
        """Run passes; False where a loop variable turned out to change its shape: the caller starts again."""
        before = set(self.state.varying)
        missing = len(self.graph.nodes) + 1
        for _ in range(MOST_PASSES):
            self.unknown = set()
            for i in self.graph.order:
                self._visit(i)
            if len(self.unknown) >= missing or not self.unknown or self.state.varying != before:
                break
            missing = len(self.unknown)
        return self.state.varying == before

    def tie_gradients(self) -> None:
        """Shapes that a gradient has as numbers are those of the inputs of the forward op that it is named after."""
        numbers = {node.name: i for i, node in enumerate(self.graph.nodes)}
        for i, node in enumerate(self.graph.nodes):
            found = _GRADIENT_SHAPE.search(node.name) if node.type == "Const" and "_grad/" in node.name else None
            if found is None or found[1] not in numbers:
                continue
            position, inputs = int(found[2] or 0), self.graph.nodes[numbers[found[1]]].inputs
            shape = self._tensor(inputs[position]).shape if position < len(inputs) else None
            values = self._tensor(Ref(i)).values
            if shape is not None and values is not None and len(values) == len(shape):
                self.sizes.place = node.name
                for dim, value in zip(shape, values, strict=True):
                    self.sizes.equal_if_alike(dim, value)

    def _visit(self, i: int) -> None:
        self.sizes.place = self.graph.nodes[i].name
        try:
            tensors = self._inferred(i)
            self._unify_with(i, tensors)
            if i in self._carried:
                self._close(self._carried[i], tensors[0].shape)
        except ShapeError as error:
            raise self._fail(i, f"sizes do not fit: {error}") from None
        except IndexError:
            raise self._fail(i, "it has too few inputs, or an input has too few elements") from None
        except (ArithmeticError, ValueError) as error:
            raise self._fail(i, f"its shape cannot be computed: {error}") from None
        self.tensors[i] = tensors
        if self.graph.nodes[i].type in EXITS:
            self.tensors[i] = [self.counters.left(i)]
        elif self.graph.nodes[i].type in WRITES:
            self._grow(i)

    def _grow(self, i: int) -> None:
        """An array that grows is as long as what is written to it."""
        array, length = self.tensors[i][0].handle, self.counters.written(i)
        if array in self.state.growing and length is not None:
            self.state.has_length(array, length, self.sizes)

    def _fail(self, i: int, text: str) -> MetaGraphError:
        node = self.graph.nodes[i]
        return self.graph.raw.fail(f"({node.type}) {text}", node.name)

    def _op(self, i: int) -> Op:
        node = self.graph.nodes[i]
        refs = [ref for ref in node.inputs if not self.graph.is_back_edge(node, ref)]
        return Op(
            i, node.name, node.type, node.attributes, list(map(self._tensor, refs)), self._outputs[i], self.sizes,
            self.state, self.exact, loops=len(refs) < len(node.inputs),
        )  # fmt: skip

    def _tensor(self, ref: Ref) -> Tensor:
        tensors = self.tensors[ref.node]
        return tensors[ref.output] if ref.output < len(tensors) else Tensor()

    def _inferred(self, i: int) -> list[Tensor]:
        op = self._op(i)
        try:
            found = TABLE.get(op.type, of_elements)(op)
        except Unknown:
            self.unknown.add(i)
            found = Tensor()
        tensors = list(found) if isinstance(found, list) else [found if isinstance(found, Tensor) else Tensor(found)]
        tensors += [Tensor()] * (op.outputs - len(tensors))
        tensors = [self._completed(op, k, tensor) for k, tensor in enumerate(tensors)]
        for pattern, dims in self.bindings:
            if pattern.fullmatch(op.name) and tensors:
                self.bound.add(pattern.pattern)
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
        for old, new in zip(self.tensors[i], tensors, strict=False):
            if old.shape is not None and new.shape is not None and len(old.shape) == len(new.shape):
                for a, b in zip(old.shape, new.shape, strict=True):
                    self.sizes.equal(a, b)

    def _close(self, merge: int, shape: Shape | None) -> None:
        """Unify the shapes of a loop variable before and after a trip; dims for which that is impossible vary."""
        entered = self._tensor(Ref(merge)).shape
        if entered is None or shape is None:
            return
        if len(entered) != len(shape):
            raise ShapeError(f"{len(entered)} dimensions enter the loop and {len(shape)} come back")
        for d, (a, b) in enumerate(zip(entered, shape, strict=True)):
            if (merge, d) not in self.state.varying:
                try:
                    self.sizes.equal(a, b)
                except ShapeError:
                    self.state.varying.add((merge, d))


def _bound(op: Op, tensor: Tensor, dims: tuple[Expr, ...]) -> Tensor:
    """Return the tensor with the sizes that the caller gave. Raises ShapeError where the file has other ones."""
    elements = tensor.values if op.type == "Const" else None
    known, what = (tensor.shape, "dimensions") if elements is None else (elements, "elements")
    if known is None or len(dims) != len(known):
        raise ShapeError(f"{len(dims)} bound sizes and {known if known is None else len(known)} {what}")
    given = tuple(_named(op, *pair) for pair in zip(known, dims, strict=True))
    if elements is not None:
        return Tensor(tensor.shape, given)
    if op.type == "VarHandleOp":
        op.state.elements[op.number] = given
    return Tensor(given, tensor.values, tensor.handle)


def _named(op: Op, stored: Expr, given: Expr) -> Expr:
    for name in sorted(given.symbols):
        op.sizes.new(name, None, Origin.USER)
    number = stored.value
    if not isinstance(number, int):
        op.equal(stored, given)
    elif number != -1:  # -1 is "the rest", of which the caller may know more
        op.sizes.state(given, number)
    return given
