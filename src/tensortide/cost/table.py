"""A graph's costs as a table: one row per op, exact expressions, sums by whatever rows share."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec

from tensortide.cost.count import Count, phase_of
from tensortide.cost.evaluate import rule_for
from tensortide.cost.opcall import qualified
from tensortide.expr import Expr, compiled, constant, expr_of, text, total
from tensortide.graph.model import OUTSIDE, Graph, OpView, Phase, Role, Tensor, describe
from tensortide.shown import Show

QUANTITIES = ("parameters", "flops", "bytes", "footprint", "io")
"""Columns of a table: elements of parameters, FLOPs, bytes accessed, of storages, fed and fetched."""

Quantity: TypeAlias = str
ZERO = constant(0)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One op. Quantities are of one run; a step has ``trips`` of them. ``loop`` is the name of the loop it is in.

    ``rule`` is the formula of its FLOPs. An op that is not ``known`` has no rule and counts as 0. ``inputs`` and
    ``outputs`` are texts of its tensors: the name of each, its dtype and its shape.
    """

    name: Annotated[str, Show("Op", "path", fold=True)]
    type: Annotated[str, Show("Type", at_width=140)]
    scope: Annotated[str, Show(unit="path", data=True)] = ""
    phase: Annotated[str, Show("Phase", at_width=140)] = Phase.FORWARD.value
    loop: Annotated[str, Show(unit="path", data=True)] = ""
    trips: Expr = msgspec.field(default_factory=lambda: constant(1))
    parameters: Expr = ZERO
    flops: Expr = ZERO
    bytes: Expr = ZERO
    footprint: Expr = ZERO
    io: Expr = ZERO
    known: bool = True
    rule: Annotated[str, Show(unit="code", data=True)] = ""
    inputs: Annotated[str, Show("Inputs", "code", fold=True, at_width=100)] = ""
    outputs: Annotated[str, Show("Outputs", "code", fold=True, at_width=100)] = ""

    def of_step(self, quantity: Quantity) -> Expr:
        """One of ``QUANTITIES`` in all runs of the op. Parameters, inputs and outputs are there once."""
        value: Expr = getattr(self, quantity)
        return value if quantity in ("parameters", "io") else value * self.trips


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that exists before the step: an input, which is fed to it, or a parameter."""

    name: Annotated[str, Show("Name", "path", fold=True)]
    tensor: Annotated[str, Show("Tensor", "code", fold=True)]
    elements: Expr
    bytes: Expr


class Table(msgspec.Struct, frozen=True, dict=True):
    """All rows of a graph. ``hints`` are values of its symbols, the file's own unless others were set; ``name`` is the
    tool whose rules it has; ``notes`` are the assumptions made of the graph; ``held`` has its ``inputs``, which are
    fed to the step, and its ``parameters``."""

    rows: tuple[Row, ...]
    hints: Mapping[str, int] = {}
    name: str = "tensortide"
    notes: tuple[str, ...] = ()
    held: Mapping[str, tuple[Held, ...]] = {}

    @functools.cached_property
    def totals(self) -> dict[Quantity, Expr]:
        """The sums of all rows, each times its trips."""
        return _sums(self.rows)

    def by(self, key: Callable[[Row], str]) -> dict[str, dict[Quantity, Expr]]:
        """Return the sums of the rows that share a ``key``, in order of appearance."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(key(row), []).append(row)
        return {name: _sums(rows) for name, rows in groups.items()}

    def values(self, expressions: Iterable[Expr]) -> list[int]:
        """Values of expressions at the hints."""
        return compiled(expressions)(self.hints)

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols of the totals, and their values."""
        names = sorted({name for expr in self.totals.values() for name in expr.symbols})
        return {name: self.hints[name] for name in names}

    @property
    def unknown(self) -> dict[str, int]:
        """Op types without a rule, and how many ops of each there are; the most frequent first."""
        return dict(Counter(row.type for row in self.rows if not row.known).most_common())

    @property
    def coverage(self) -> str:
        """The line that follows the totals."""
        missing, ops = self.unknown, len(self.rows)
        if not missing:
            return f"All {ops} ops have a rule."
        listed = ", ".join(f"{kind} x{count}" for kind, count in missing.items())
        return f"{ops - sum(missing.values())} of {ops} ops have a rule; counted as 0: {listed}"


def _sums(rows: Iterable[Row]) -> dict[Quantity, Expr]:
    rows = tuple(rows)
    return {quantity: total(row.of_step(quantity) for row in rows) for quantity in QUANTITIES}


def row_of(view: OpView) -> Row:
    """Return the row of an op, without its costs."""
    op = view.op
    return Row(
        name=_name_of(view),
        type=_type_of(view),
        scope=op.label.rpartition("/")[0] if op.label else view.module,
        phase=phase_of(op),
        loop="" if op.loop == OUTSIDE else view.graph.loops[op.loop].name,
        trips=expr_of(view.trips),
    )


def _type_of(view: OpView) -> str:
    return view.name.partition(".")[2].removesuffix(".default")


def _name_of(view: OpView) -> str:
    return view.op.label or f"{_type_of(view)}#{view.index}"


def table_of(count: Count, hints: Mapping[str, int] | None = None) -> Table:
    """Return the rows of a counted graph. The totals of FLOPs and bytes are those of ``count``.

    An op's footprint are the storages that it allocates, or for what exists before the step, that it stands for.
    Arms of a conditional that the totals do not take have no FLOPs and no bytes.
    """
    graph = count.graph
    parameters, fed, fetched = _named(graph)
    storages = _owners(graph)
    running = set(count.running)
    names = _tensor_names(graph)

    def told(tensors: Iterable[int]) -> str:
        return ", ".join(f"{names[i]} {_described(graph.tensors[i])}" for i in tensors)

    rows = []
    for view, found in zip(graph, count.costs, strict=True):
        cost = found.cost if view.index in running else None
        own = storages.get(view.index, ())
        rule = rule_for(qualified(view.name)) if found.how in ("rule", "view") else None
        rows.append(
            msgspec.structs.replace(
                row_of(view),
                parameters=total(expr_of(n) for i in own for n in parameters.get(i, ())),
                flops=ZERO if cost is None else expr_of(cost.flops),
                bytes=ZERO if cost is None else expr_of(cost.bytes),
                footprint=total(expr_of(graph.storages[i].nbytes) for i in own),
                io=total(expr_of(graph.storages[i].nbytes) for i in own if i in fed or i in fetched),
                known=found.cost is not None,
                rule=found.how if rule is None else rule.formula,
                inputs=told(view.op.inputs),
                outputs=told(view.op.outputs),
            )
        )
    return Table(tuple(rows), dict(hints or {}), notes=graph.meta.assumptions, held=_held(graph, names))


def _described(tensor: Tensor) -> str:
    """A tensor's dtype and shape, with formulas for its sizes: ``f32[batch,4*hidden]``."""
    sizes = tuple(text(expr_of(size)) for size in tensor.shape)
    return describe(tensor, sizes)


def _tensor_names(graph: Graph) -> list[str]:
    """The name of each tensor: its own, else that of the op that makes it, with ``:1`` for its second output, else that
    of its storage."""
    names = {entry.tensor: entry.name for entry in reversed(graph.named)}
    for view in graph:
        for number, tensor in enumerate(view.op.outputs):
            names.setdefault(tensor, f"{_name_of(view)}:{number}" if number else _name_of(view))
    storages = graph.storages
    return [
        names.get(i) or storages[tensor.storage].name or f"{storages[tensor.storage].role.value}#{tensor.storage}"
        for i, tensor in enumerate(graph.tensors)
    ]


def _held(graph: Graph, names: Sequence[str]) -> dict[str, tuple[Held, ...]]:
    """The inputs, by the first tensor of each storage that is fed, and the parameters, each once."""
    first: dict[int, int] = {}
    for index, tensor in enumerate(graph.tensors):
        if graph.storages[tensor.storage].role is Role.INPUT:
            first.setdefault(tensor.storage, index)
    parameters = dict.fromkeys(entry.tensor for entry in graph.named if entry.role is Role.PARAMETER)

    def held(index: int) -> Held:
        tensor = graph.tensors[index]
        nbytes = expr_of(graph.storages[tensor.storage].nbytes)
        return Held(name=names[index], tensor=_described(tensor), elements=expr_of(tensor.numel), bytes=nbytes)

    return {"inputs": tuple(map(held, first.values())), "parameters": tuple(map(held, parameters))}


def _owners(graph: Graph) -> dict[int, list[int]]:
    """Return for each op the storages that it allocates, or is the first to touch of those that exist before it."""
    owners: dict[int, list[int]] = {}
    for storage, users in enumerate(graph.index.users):
        if users:
            owners.setdefault(users[0], []).append(storage)
    return owners


def _named(graph: Graph) -> tuple[dict[int, list[int]], set[int], set[int]]:
    """Elements of the trained parameters by storage; storages that are fed and that are fetched."""
    parameters: dict[int, list[int]] = {}
    seen: set[int] = set()
    for entry in graph.named:
        tensor = graph.tensors[entry.tensor]
        if entry.role is Role.PARAMETER and entry.trainable and entry.tensor not in seen:
            parameters.setdefault(tensor.storage, []).append(tensor.numel)
            seen.add(entry.tensor)
    fed = {i for i, storage in enumerate(graph.storages) if storage.role is Role.INPUT}
    fetched = {graph.tensors[entry.tensor].storage for entry in graph.named if entry.role is Role.OUTPUT}
    return parameters, fed, fetched
