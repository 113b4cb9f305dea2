"""Lifting of aligned captures to one Graph whose sizes are expressions.

Captures with one skeleton differ in their integers only. Each integer of the step (a dimension, a stride, the bytes
of a storage, an argument) is a vector over the captures, and every distinct vector is solved once. The result is the
first capture with Sizes in place of the integers that vary: the cost rules then compute expressions by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tensortide.expr import sized
from tensortide.formulas.skeleton import integers, replaced
from tensortide.formulas.vectors import Solver, Vector
from tensortide.graph.model import Call, Graph, Named, Op, Storage, Tensor

__all__ = ["Lifted", "lift"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lifted:
    """``graph`` has Sizes where the captures differ. ``unsolved``: vectors without an expression, and where they are;
    those sizes keep the first capture's numbers."""

    graph: Graph
    unsolved: dict[Vector, str]


def lift(graphs: Sequence[Graph], solver: Solver) -> Lifted:
    """The common graph of ``graphs``, which have one skeleton and were captured at the solver's points."""
    return _Lift(graphs, solver).lifted()


class _Lift:
    def __init__(self, graphs: Sequence[Graph], solver: Solver) -> None:
        self._graphs = graphs
        self._solver = solver
        self._tensors: dict[tuple[int, ...], int] = {}
        self._calls: dict[tuple[int, ...], int] = {}
        self._ops = [self._op(row) for row in _rows(graph.ops for graph in graphs)]
        self._named = [
            Named(row[0].name, row[0].role, self._number([n.tensor for n in row]), row[0].trainable)
            for row in _rows(graph.named for graph in graphs)
        ]
        self._shapes = [tuple(_rows(tensor.shape for tensor in self._row(key))) for key in self._tensors]
        self._nearby = {
            op.call: [vector for tensor in (*op.inputs, *op.outputs) for vector in self._shapes[tensor]]
            for op in reversed(self._ops)
        }
        self._unsolved: dict[Vector, str] = {}

    def _op(self, row: Sequence[Op]) -> Op:
        """The op of all captures; tensors and calls are told apart if any capture does."""
        first = row[0]
        return Op(
            self._calls.setdefault(tuple([op.call for op in row]), len(self._calls)),
            tuple([self._number(group) for group in _rows(op.inputs for op in row)]),
            tuple([self._number(group) for group in _rows(op.outputs for op in row)]),
            first.phase,
            first.module,
            first.source,
            first.recompute,
            first.branch,
        )

    def _number(self, group: Iterable[int]) -> int:
        return self._tensors.setdefault(tuple(group), len(self._tensors))

    def _row(self, key: tuple[int, ...]) -> list[Tensor]:
        """One tensor in all captures."""
        return [graph.tensors[index] for graph, index in zip(self._graphs, key, strict=True)]

    def lifted(self) -> Lifted:
        self._solve_dimensions()
        first = self._graphs[0]
        return Lifted(
            Graph(
                tuple(self._ops),
                tuple([self._call(key) for key in self._calls]),
                tuple([self._tensor(index, key) for index, key in enumerate(self._tensors)]),
                tuple(self._storages()),
                first.modules,
                first.sources,
                first.branches,
                tuple(self._named),
                first.meta,
            ),
            self._unsolved,
        )

    # -- dimensions ---------------------------------------------------------------------------------

    def _solve_dimensions(self) -> None:
        """First those that explain themselves; then, op by op, what neighbours explain and what takes a search.

        In this order a dimension that is a product of others (a flattened image) meets its factors solved.
        """
        solver = self._solver
        for shape in self._shapes:
            for vector in shape:
                solver.solve(vector)
        for op in self._ops:
            tensors = (*op.inputs, *op.outputs)
            if all(solver.solve(vector) is not None for tensor in tensors for vector in self._shapes[tensor]):
                continue
            near = [vector for tensor in tensors for vector in self._shapes[tensor]]
            for vector in dict.fromkeys(near):
                if solver.solve(vector, near) is None and solver.settle(vector) is None:
                    self._unsolved.setdefault(vector, f"a dimension at {self._where(op)}")
        for vector in [v for v in self._unsolved if solver.solve(v) is not None]:
            del self._unsolved[vector]

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
        return Tensor(
            row[0].storage,
            row[0].dtype,
            tuple([self._size(vector, (), f"a dimension {what}") for vector in shape]),
            tuple([self._size(vector, shape, f"a stride {what}") for vector in strides]),
            self._size(tuple([tensor.offset for tensor in row]), shape, f"the offset {what}"),
        )

    def _storages(self) -> Iterator[Storage]:
        views: dict[int, list[Vector]] = {}
        for index, key in enumerate(self._tensors):
            views.setdefault(self._row(key)[0].storage, []).extend(self._shapes[index])
        for index, row in enumerate(_rows(graph.storages for graph in self._graphs)):
            first = row[0]
            vector = tuple([storage.nbytes for storage in row])
            nbytes = self._size(vector, views.get(index, ()), f"the bytes of storage {index} {first.name}".rstrip())
            yield Storage(nbytes, first.device, first.role, first.birth, first.death, first.name)

    def _call(self, key: tuple[int, ...]) -> Call:
        calls = [graph.calls[index] for graph, index in zip(self._graphs, key, strict=True)]
        first = calls[0]
        vectors = _rows(list(integers(tuple([value for _, value in call.arguments]))) for call in calls)
        near = self._nearby.get(self._calls[key], ())
        numbers = iter([self._size(vector, near, f"an argument of {first.op}") for vector in vectors])
        arguments = tuple([(name, replaced(value, numbers)) for name, value in first.arguments])
        return Call(first.op, arguments, first.positional, first.mutated, first.returns, first.tags)

    def _size(self, vector: Vector, near: Sequence[Vector], where: str) -> int:
        """The first capture's integer, as a Size if it is solved."""
        if vector.count(vector[0]) == len(vector):
            return vector[0]
        expr = self._solver.solve(vector, near) or self._solver.settle(vector)
        if expr is None:
            self._unsolved.setdefault(vector, where)
            return vector[0]
        return sized(expr, vector[0])


def _rows(columns: Iterable[Sequence[T]]) -> list[tuple[T, ...]]:
    """The columns side by side."""
    return list(zip(*columns, strict=True))
