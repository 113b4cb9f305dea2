"""An op as a cost rule sees it: its arguments by name, shapes and dtypes. No graph, no values."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import msgspec

from tensortide.errors import TensortideError
from tensortide.graph.calls import NESTED, RECORDED, STORED
from tensortide.graph.handles import contiguous
from tensortide.graph.model import Call, OpView, Tensor, count_slots, fill


@functools.cache
def qualified(name: str) -> str:
    """``aten::add.Tensor`` for the graph's ``aten.add.Tensor``, ``aten::add`` for ``aten.add.default``."""
    namespace, _, rest = name.partition(".")
    return f"{namespace}::{rest.removesuffix('.default')}"


class Stored(NamedTuple):
    """Elements that sparse tensors store, and the bytes of these and of their indices."""

    elements: int
    nbytes: int


@dataclass(slots=True, eq=False, repr=False)
class OpCall:
    """One call of an op. ``name`` is ``namespace::op`` or ``namespace::op.overload``.

    A rule reads arguments with ``arg`` (with the default that the op's schema has), ``tensor`` and ``shape``, and
    shows the symbols of its formula with ``let``. ``mutated`` are the input tensors that the op writes,
    ``overwritten`` the names of the arguments that it writes without reading them (``out=``), ``sparse`` what sparse
    arguments store, and results under the empty name. A rule that asks for none of it is no rule for sparse tensors.
    """

    name: str
    arguments: dict[str, object]
    outputs: Sequence[Tensor] = ()
    result: object = None
    mutated: Sequence[Tensor] = ()
    overwritten: frozenset[str] = frozenset()
    unused: frozenset[int] = frozenset()
    sparse: dict[str, Stored] = field(default_factory=dict)
    knows_sparse: bool = False
    symbols: dict[str, int | str] = field(default_factory=dict)
    inputs: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = tuple(tensors_in(tuple(self.arguments.values())))

    @classmethod
    def of(cls, op: OpView, unused: frozenset[int] = frozenset()) -> OpCall:
        """The call of a recorded op. ``unused`` are the outputs that nobody reads."""
        return cls._of(op.call, op.inputs, op.outputs, unused)

    @classmethod
    def of_each(cls, op: OpView, unused: frozenset[int] = frozenset()) -> list[OpCall]:
        """The calls that do to each tensor of nested operands, as a batch of one, what a recorded op does to all; none
        if no operand is nested."""
        told = next((value for name, value in op.call.arguments if name == NESTED), None)
        if not isinstance(told, tuple):
            return []
        tensors, sizes = (*op.inputs, *op.outputs), cast("tuple[tuple[tuple[int, ...], ...], ...]", told)
        calls = []
        for place in range(max(map(len, sizes))):
            each = [
                msgspec.structs.replace(tensor, shape=shape, strides=contiguous(shape))
                if len(nested) > place and (shape := (1, *nested[place]))
                else tensor
                for tensor, nested in zip(tensors, sizes, strict=True)
            ]
            calls.append(cls._of(op.call, each[: len(op.inputs)], each[len(op.inputs) :], unused))
        return calls

    @classmethod
    def _of(cls, call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor], unused: frozenset[int]) -> OpCall:
        tensors = iter(inputs)
        arguments = {name: fill(value, tensors) for name, value in call.arguments if not name.endswith(RECORDED)}
        made = cls(
            qualified(call.op),
            arguments,
            outputs,
            fill(call.returns, iter(outputs)),
            mutated=[inputs[i] for i in call.mutated],
            overwritten=_out_arguments(call) if call.mutated else frozenset(),
            unused=unused,
        )
        for name, value in call.arguments:
            if name.endswith(STORED) and isinstance(value, tuple):
                made.sparse[name.removesuffix(STORED)] = Stored(*cast("tuple[int, int]", value))
        return made

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join(self.arguments)})>"

    @property
    def base(self) -> str:
        """The op without namespace and overload: ``add`` of ``aten::add.Tensor``."""
        return self.name.partition("::")[2].partition(".")[0]

    def arg(self, name: str, default: Any = None) -> Any:
        """The argument ``name``: a tensor, number, string or tuple of these; ``default`` if it was not given."""
        value = self.arguments.get(name, default)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Return whether argument ``name`` was given and is not None."""
        return self.arguments.get(name) is not None

    def tensor(self, name: str) -> Tensor:
        """The tensor argument ``name``. Raises TensortideError where there is none."""
        value = self.arguments.get(name)
        if not isinstance(value, Tensor):
            known = ", ".join(self.arguments)
            raise TensortideError(f"{self.name} has no tensor argument {name!r}; its arguments are: {known}")
        return value

    def first(self, *names: str) -> Tensor:
        """The tensor argument that the op has under one of ``names``."""
        return self.tensor(next((name for name in names if name in self.arguments), names[-1]))

    def operand(self, which: str) -> Tensor:
        """The operand that a row names: an argument, the first of several that the op has, a number (``0`` is the
        first tensor given), ``out`` or the ``last`` output."""
        names = which.split()
        for name in names:
            if name in ("out", "last"):
                return self.out if name == "out" else self.outputs[-1]
            if isinstance(self.arguments.get(name), Tensor):
                return self.tensor(name)
            if name.isdigit() and int(name) < len(self.inputs):
                return self.inputs[int(name)]
        return self.tensor(names[-1])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of tensor argument ``name``."""
        return self.tensor(name).shape

    def tensors(self, name: str) -> tuple[Tensor, ...]:
        """The tensors of argument ``name``, which is a tensor, a list of them or absent."""
        return tuple(tensors_in(self.arguments.get(name)))

    @property
    def out(self) -> Tensor:
        """The first output; of an op that only writes its arguments, the first it writes."""
        return self.outputs[0] if self.outputs else self.mutated[0]

    def wanted(self, position: int) -> bool:
        """Return whether output ``position`` of several exists and is read."""
        if not isinstance(self.result, tuple) or position >= len(self.result) or self.result[position] is None:
            return False
        before = sum(1 for _ in tensors_in(self.result[:position]))
        return before not in self.unused

    def stored(self, which: str) -> int | None:
        """The elements that the operand ``which`` stores, all of a dense one; of a dense result of one sparse operand
        those that this one adds to. None: that is not known."""
        self.knows_sparse, operand = True, self.operand(which)
        if not self.sparse:
            return operand.numel
        names = [name for name in self.sparse if self.arguments.get(name) is operand]
        if not names and operand is self.out:
            names = [""] if "" in self.sparse else list(self.sparse)
        if not names:
            return operand.numel
        return self.sparse[names[0]].elements if len(names) == 1 else None

    def let(self, **symbols: int | str) -> None:
        """Show ``symbols`` of the formula, for explanations."""
        self.symbols.update(symbols)


def _out_arguments(call: Call) -> frozenset[str]:
    """Mutated arguments that are passed by keyword: ``out=`` and its like."""
    names: set[str] = set()
    slot = 0
    for position, (name, value) in enumerate(call.arguments):
        slots = count_slots(value)
        if position >= call.positional and any(slot <= hole < slot + slots for hole in call.mutated):
            names.add(name)
        slot += slots
    return frozenset(names)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor in a nested value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)
