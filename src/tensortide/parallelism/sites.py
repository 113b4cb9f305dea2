"""One op as a sharding rule sees it: its arguments by name, and the axes of its tensors to tie together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from tensortide.graph.model import TENSOR, Call, Graph, Tensor, Value, count_slots
from tensortide.parallelism.axes import Axes, Axis
from tensortide.parallelism.layout import cut_all


class Ref(int):
    """A tensor of the Graph among the arguments of an op."""


class Partial(NamedTuple):
    """An output that is incomplete on each rank if ``axes`` are sharded: the parts are combined by ``how``, which is
    ``sum``, ``avg``, ``max``, ``min`` or ``norm`` (the root of the sum of squares)."""

    output: int
    axes: tuple[Axis, ...]
    how: str


@dataclass(slots=True)
class Site:
    """One op, ``name`` without namespace, overload and the underscore of in-place forms. ``dims`` are the axes of every
    tensor of the Graph, one for each dimension; ``partials`` is what its rule finds."""

    graph: Graph
    axes: Axes
    dims: list[list[Axis]]
    index: int
    name: str
    arguments: dict[str, Any]
    inputs: list[Ref]
    outputs: list[Ref]
    result: Any
    partials: list[Partial] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, axes: Axes, dims: list[list[Axis]], index: int) -> Site:
        """The site of the op at ``index``."""
        op = graph.ops[index]
        call = graph.calls[op.call]
        holes = iter(op.inputs)
        arguments = {name: _filled(value, holes) for name, value in call.arguments}
        result = _filled(call.returns, iter(op.outputs))
        inputs, outputs = [Ref(t) for t in op.inputs], [Ref(t) for t in op.outputs]
        return cls(graph, axes, dims, index, base_name(call.op), arguments, inputs, outputs, result)

    @property
    def where(self) -> str:
        """The op, its module and its line, for messages."""
        return located(self.graph, self.index)

    def tensor(self, ref: Ref) -> Tensor:
        return self.graph.tensors[ref]

    def rank(self, ref: Ref) -> int:
        """Number of dimensions."""
        return len(self.graph.tensors[ref].shape)

    def size(self, ref: Ref, dim: int) -> int:
        return self.graph.tensors[ref].shape[dim]

    def has(self, name: str) -> bool:
        """Return whether argument ``name`` is a tensor."""
        return isinstance(self.arguments.get(name), Ref)

    def outs(self, position: int) -> Ref | None:
        """The output at ``position`` of the result; None where there is none."""
        if not isinstance(self.result, tuple):
            return self.result if position == 0 and isinstance(self.result, Ref) else None
        found = self.result[position] if position < len(self.result) else None
        return found if isinstance(found, Ref) else None

    def tie(self, one: Ref, i: int, other: Ref, j: int) -> None:
        """Tie two dimensions if they have one size; of a size of 1 nothing is known."""
        a, b = self.size(one, i), self.size(other, j)
        if a == b:
            self.axes.tie([self.dims[one][i]], [self.dims[other][j]], f"it is grouped otherwise by {self.where}")
        elif a != 1 and b != 1:
            self.cut(one, i)
            self.cut(other, j)

    def tie_all(self, one: Ref, other: Ref, skip: Iterable[int] = ()) -> None:
        """Tie the dimensions of two tensors of as many, in order, but those in ``skip``."""
        left_out = {dim % max(self.rank(one), 1) for dim in skip}
        for dim in range(min(self.rank(one), self.rank(other))):
            if dim not in left_out:
                self.tie(one, dim, other, dim)

    def broadcast(self, out: Ref, operand: Ref) -> None:
        """Tie the dimensions of an operand to those of the output, from the last one on."""
        for back in range(1, min(self.rank(out), self.rank(operand)) + 1):
            if self.size(operand, -back) == self.size(out, -back):
                self.tie(out, -back, operand, -back)

    def whole(self, ref: Ref, *dims: int) -> None:
        """Note that the op needs the whole of each of ``dims``."""
        for dim in dims:
            self.axes.whole(self.dims[ref][dim], f"{self.where} needs the whole of {self._dimension(ref, dim)}")

    def cut(self, ref: Ref, *dims: int) -> None:
        """Note that none of ``dims`` can be divided."""
        for dim in dims:
            why = f"{self.where} does not work on equal shares of {self._dimension(ref, dim)}"
            self.axes.cut(self.dims[ref][dim], why)

    def _dimension(self, ref: Ref, dim: int) -> str:
        shape = self.tensor(ref).shape
        return f"dimension {dim % max(len(shape), 1)} of ({', '.join(map(str, shape))})"

    def cut_everything(self, why: str) -> None:
        """Cut all dimensions of all tensors of the op."""
        for ref in (*self.inputs, *self.outputs):
            cut_all(self.axes, self.dims[ref], f"{self.where} {why}")

    def partial(self, out: Ref | None, ref: Ref, dims: Sequence[int], how: str = "sum") -> None:
        """Note that ``out`` is combined over ``dims`` of ``ref``."""
        if out is not None and dims:
            self.partials.append(Partial(int(out), tuple(self.dims[ref][dim] for dim in dims), how))


def source_file(graph: Graph, index: int) -> str:
    """The name of the file that an op comes from, without folders; empty if it is not known."""
    source = graph.ops[index].source
    return graph.sources[source].file.rsplit("/", 1)[-1] if source >= 0 else ""


def located(graph: Graph, index: int) -> str:
    """An op with its module and the line of the user's code that it comes from."""
    op = graph.ops[index]
    line = ""
    if op.source >= 0:
        line = f" ({source_file(graph, index)}:{graph.sources[op.source].line})"
    return f"{graph.calls[op.call].op} in {graph.module_path(op.module)}{line}"


def base_name(op: str) -> str:
    """``add`` of ``aten.add_.Tensor``."""
    return op.split(".")[1].rstrip("_")


def holes_of(call: Call) -> list[str]:
    """The argument of each tensor that a call takes, in order."""
    return [name for name, value in call.arguments for _ in range(count_slots(value))]


def with_values(call: Call, values: Mapping[str, Value]) -> Call:
    """``call`` with other ``values`` of the arguments that it has of them."""
    return replace(call, arguments=tuple((name, values.get(name, value)) for name, value in call.arguments))


def _filled(value: Value, holes: Iterator[int]) -> Any:
    if value is TENSOR:
        return Ref(next(holes))
    if isinstance(value, tuple):
        return tuple(_filled(item, holes) for item in value)
    return value


def refs_in(value: object) -> list[Ref]:
    """Every tensor in a nested argument, in order."""
    if isinstance(value, Ref):
        return [value]
    return [ref for item in value for ref in refs_in(item)] if isinstance(value, tuple) else []
