"""Alignment of captures, and lifting of them to one Graph whose sizes are expressions.

Captures with one *skeleton*, everything but sizes, differ in their integers only. Each integer of the step (a
dimension, a stride, the bytes of a storage, an argument) is a vector over the captures, and every distinct vector is
solved once. The result is the first capture with Sizes in place of the integers that vary: the cost rules then compute
expressions by themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from tensortide.expr import Expr, ceil_ratio, constant, floor_ratio, sized
from tensortide.formulas.terms import Vector
from tensortide.formulas.vectors import Solver
from tensortide.graph.model import TENSOR, Call, Const, Graph, Op, Storage, Tensor, Value

T = TypeVar("T")

Skeleton: TypeAlias = tuple[tuple[object, ...], ...]


def skeleton(graph: Graph) -> Skeleton:
    """The ops of ``graph`` without sizes: equal for captures that differ in sizes only."""
    calls = [(c.op, c.positional, c.mutated, _without_numbers(c.arguments), c.returns) for c in graph.calls]
    modules = [module.path for module in graph.modules]
    modules.append("")
    tensors = graph.tensors
    kinds = [(tensor.storage, tensor.dtype, len(tensor.shape)) for tensor in tensors]
    ops = tuple(
        (
            calls[op.call],
            op.phase,
            modules[op.module],
            op.recompute,
            op.branch,
            tuple([kinds[t] for t in op.inputs]),
            tuple([kinds[t] for t in op.outputs]),
        )
        for op in graph.ops
    )
    storages = tuple((s.device, s.role, s.birth, s.death, s.name) for s in graph.storages)
    named = tuple((n.name, n.role, *kinds[n.tensor], n.trainable) for n in graph.named)
    return (*ops, storages, named)


def _without_numbers(value: Value) -> object:
    if isinstance(value, tuple):
        return tuple(map(_without_numbers, value))
    if isinstance(value, bool) or value is None or value is TENSOR or isinstance(value, Const):
        return value
    return str if isinstance(value, str) else float


def difference(a: Graph, b: Graph) -> str | None:
    """Return the first difference in structure of two captures, None if only their sizes differ."""
    left, right = skeleton(a), skeleton(b)
    if left == right:
        return None
    count = f"{len(a)} ops against {len(b)}"
    named = [[(graph.calls[op.call].op, graph.module_path(op.module)) for op in graph.ops] for graph in (a, b)]
    for index, (one, other) in enumerate(zip(*named, strict=False)):
        if one != other:
            return f"{count}; op {index} is {one[0]} in {one[1]} against {other[0]} in {other[1]}"
    if len(a) != len(b):
        return count
    for index, one in enumerate(named[0]):
        if left[index] != right[index]:
            return f"{count}; op {index}, {one[0]} in {one[1]}, differs in its arguments"
    return f"{count}, the same; but memory is allocated or released elsewhere"


def lift(graphs: Sequence[Graph], solver: Solver) -> tuple[Graph, dict[Vector, str]]:
    """The common graph of ``graphs``, which have one skeleton and were captured at the solver's points.

    It has Sizes where the captures differ. With it come the vectors without an expression, and where they are: those
    sizes keep the first capture's numbers.
    """
    work = _Lift(graphs, solver)
    return work.graph(), work.unsolved


class _Lift:
    def __init__(self, graphs: Sequence[Graph], solver: Solver) -> None:
        self._graphs = graphs
        self._solver = solver
        self._tensors: dict[tuple[int, ...], int] = {}
        self._calls: dict[tuple[int, ...], int] = {}
        self._ops = [self._op(row) for row in _rows(graph.ops for graph in graphs)]
        self._named = [
            replace(row[0], tensor=self._number([n.tensor for n in row]))
            for row in _rows(graph.named for graph in graphs)
        ]
        self._shapes = [tuple(_rows(tensor.shape for tensor in self._row(key))) for key in self._tensors]
        self._nearby = {
            op.call: [vector for tensor in (*op.inputs, *op.outputs) for vector in self._shapes[tensor]]
            for op in reversed(self._ops)
        }
        self._arguments = {self._calls[key]: self._integers(key) for key in self._calls}
        self.unsolved: dict[Vector, str] = {}

    def _integers(self, key: tuple[int, ...]) -> list[Vector]:
        """The integers in a call's arguments."""
        calls = [graph.calls[index] for graph, index in zip(self._graphs, key, strict=True)]
        return _rows(list(integers(tuple([value for _, value in call.arguments]))) for call in calls)

    def _op(self, row: Sequence[Op]) -> Op:
        """The op of all captures; tensors and calls are told apart if any capture does."""
        return replace(
            row[0],
            call=self._calls.setdefault(tuple([op.call for op in row]), len(self._calls)),
            inputs=tuple([self._number(group) for group in _rows(op.inputs for op in row)]),
            outputs=tuple([self._number(group) for group in _rows(op.outputs for op in row)]),
        )

    def _number(self, group: Iterable[int]) -> int:
        return self._tensors.setdefault(tuple(group), len(self._tensors))

    def _row(self, key: tuple[int, ...]) -> list[Tensor]:
        """One tensor in all captures."""
        return [graph.tensors[index] for graph, index in zip(self._graphs, key, strict=True)]

    def graph(self) -> Graph:
        """The first capture with Sizes."""
        self._solve_dimensions()
        return replace(
            self._graphs[0],
            ops=tuple(self._ops),
            calls=tuple([self._call(key) for key in self._calls]),
            tensors=tuple([self._tensor(index, key) for index, key in enumerate(self._tensors)]),
            storages=tuple(self._storages()),
            named=tuple(self._named),
            composites=None,
        )

    # -- dimensions ---------------------------------------------------------------------------------

    def _solve_dimensions(self) -> None:
        """First those that explain themselves; then, op by op, what neighbours explain and what takes a search.

        In this order a dimension that is a product of others (a flattened image) meets its factors solved.
        """
        solver = self._solver
        for shape in (*self._shapes, *self._arguments.values()):
            for vector in shape:
                solver.solve(vector)
        for op in self._ops:
            tensors = (*op.inputs, *op.outputs)
            if all(solver.solve(vector) is not None for tensor in tensors for vector in self._shapes[tensor]):
                continue
            sizes = [vector for tensor in tensors for vector in self._shapes[tensor]]
            self._learn_windows(op)
            near = [*sizes, *self._arguments[op.call]]
            for vector in dict.fromkeys(sizes):
                if solver.solve(vector, near) is None and solver.settle(vector) is None:
                    self.unsolved.setdefault(vector, f"a dimension at {self._where(op)}")
        for vector in [v for v in self.unsolved if solver.solve(v) is not None]:
            del self.unsolved[vector]

    def _learn_windows(self, op: Op) -> None:
        """Let the solver know the sizes that the results of a convolution or pooling have by its meaning."""
        key = next(key for key, index in self._calls.items() if index == op.call)
        calls = [graph.calls[index] for graph, index in zip(self._graphs, key, strict=True)]
        integers_of = {
            name: _rows(list(integers(dict(call.arguments)[name])) for call in calls) for name, _ in calls[0].arguments
        }
        if not integers_of.keys() & {"kernel_size", "padding", "step"}:
            return
        solved = {name: [self._solved(vector) for vector in several] for name, several in integers_of.items()}
        shapes = [[self._solved(vector) for vector in self._shapes[tensor]] for tensor in op.inputs]
        transposed = dict(calls[0].arguments).get("transposed") is True
        for expr in window_sizes(shapes, solved, transposed=transposed):
            self._solver.learn(expr)

    def _solved(self, vector: Vector) -> Expr | None:
        return self._solver.solve(vector) or self._solver.settle(vector)

    def _where(self, op: Op) -> str:
        first = self._graphs[0]
        call = first.calls[next(key for key, index in self._calls.items() if index == op.call)[0]]
        return f"{call.op} in {first.module_path(op.module)}"

    # -- parts of the graph -------------------------------------------------------------------------

    def _tensor(self, index: int, key: tuple[int, ...]) -> Tensor:
        row = self._row(key)
        shape = self._shapes[index]
        strides = _rows(tensor.strides for tensor in row)
        what = f"of a tensor {row[0].dtype}{list(row[0].shape)}"
        return replace(
            row[0],
            shape=tuple([self._size(vector, (), f"a dimension {what}") for vector in shape]),
            strides=tuple([self._size(vector, shape, f"a stride {what}", product=True) for vector in strides]),
            offset=self._size(tuple([tensor.offset for tensor in row]), shape, f"the offset {what}", product=True),
        )

    def _storages(self) -> Iterator[Storage]:
        views: dict[int, list[Vector]] = {}
        for index, key in enumerate(self._tensors):
            views.setdefault(self._row(key)[0].storage, []).extend(self._shapes[index])
        for index, row in enumerate(_rows(graph.storages for graph in self._graphs)):
            first = row[0]
            vector = tuple([storage.nbytes for storage in row])
            where = f"the bytes of storage {index} {first.name}".rstrip()
            yield replace(first, nbytes=self._size(vector, views.get(index, ()), where, product=True))

    def _call(self, key: tuple[int, ...]) -> Call:
        first = self._graphs[0].calls[key[0]]
        vectors = self._arguments[self._calls[key]]
        near = self._nearby.get(self._calls[key], ())
        numbers = iter([self._size(vector, near, f"an argument of {first.op}") for vector in vectors])
        return replace(first, arguments=tuple([(name, replaced(value, numbers)) for name, value in first.arguments]))

    def _size(self, vector: Vector, near: Sequence[Vector], where: str, *, product: bool = False) -> int:
        """The first capture's integer, as a Size if it is solved."""
        if len(vector) > 1 and vector.count(vector[0]) == len(vector):
            return vector[0]
        solver = self._solver
        expr = solver.product(vector, near) if product else solver.solve(vector, near) or solver.settle(vector)
        if expr is None:
            self.unsolved.setdefault(vector, where)
            return vector[0]
        return sized(expr, vector[0])


def _rows(columns: Iterable[Sequence[T]]) -> list[tuple[T, ...]]:
    """The columns side by side."""
    return list(zip(*columns, strict=True))


def integers(value: Value) -> Iterator[int]:
    """The integers in a call's argument, in order."""
    if isinstance(value, tuple):
        for item in value:
            yield from integers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def replaced(value: Value, numbers: Iterator[int]) -> Value:
    """``value`` with its integers replaced, in order."""
    if isinstance(value, tuple):
        return tuple(replaced(item, numbers) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return next(numbers)
    return value


# -- windows ----------------------------------------------------------------------------------------
# Results of ops that slide a window or take steps: their sizes follow from the input's by the meaning of the op.


Sizes = Sequence[Expr | None]


def window_sizes(shapes: Sequence[Sizes], integers: Mapping[str, Sizes], *, transposed: bool) -> Iterator[Expr]:
    """Sizes that a result may have, by the shapes of an op's inputs and the integers among its arguments.

    A convolution has the kernel in the shape of its weight, a pooling as an argument; without a stride, windows touch.
    """
    if not shapes:
        return
    if "step" in integers:
        yield from _steps(shapes[0], integers)
    kernel = integers.get("kernel_size") or (shapes[1][2:] if "padding" in integers and len(shapes) > 1 else ())
    if not kernel or len(shapes[0]) < len(kernel):
        return
    stride, zeros = integers.get("stride") or kernel, [constant(0)]
    options = [integers.get(name) or default for name, default in (("padding", zeros), ("dilation", [constant(1)]))]
    columns = [_as_many(option, len(kernel)) for option in (*options, stride, integers.get("output_padding") or zeros)]
    found: list[Expr] = []
    for size, width, padding, dilation, step, extra in zip(shapes[0][-len(kernel) :], kernel, *columns, strict=True):
        if size is None or width is None or padding is None or dilation is None or step is None or extra is None:
            return
        reach = dilation * (width - 1) + 1
        inside = size + 2 * padding - reach
        found.append((size - 1) * step - 2 * padding + reach + extra if transposed else floor_ratio(inside, step) + 1)
        yield found[-1]
        if not transposed:
            yield ceil_ratio(inside, step) + 1
    yield math.prod(found, start=constant(1))


def _as_many(sizes: Sizes, count: int) -> Sizes:
    return list(itertools.islice(itertools.cycle(sizes), count)) if len(sizes) < count else sizes[-count:]


def _steps(shape: Sizes, integers: Mapping[str, Sizes]) -> Iterator[Expr]:
    """Sizes after slices with a step, and numbers of windows of one size."""
    (step,) = integers["step"]
    first, width = ((integers.get(name) or [constant(0)])[0] for name in ("start", "size"))
    for size in shape:
        if size is not None and step is not None and first is not None and width is not None:
            yield floor_ratio(size - width, step) + 1 if "size" in integers else ceil_ratio(size - first, step)
