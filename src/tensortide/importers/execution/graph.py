"""Nodes of an execution trace as a Graph: the dispatched ops among them, and storages that live up to the last use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from tensortide.dtypes import numbered
from tensortide.errors import TimesError
from tensortide.graph.handles import extent_bytes
from tensortide.graph.model import (
    TENSOR,
    Call,
    Const,
    Graph,
    Meta,
    Named,
    Op,
    Phase,
    Role,
    Storage,
    Tensor,
    Value,
)
from tensortide.graph.validate import validate
from tensortide.importers.execution.nodes import Node, NodeValue, TensorValue
from tensortide.recorder import resolver
from tensortide.timing.durations import Durations
from tensortide.timing.kineto import HostOp, Trace
from tensortide.timing.standins import from_samples
from tensortide.timing.traced import timer

LAST_USE = "lifetimes end at the last use: an execution trace does not record releases"
ROLES = "roles of storages follow from the ops that use them: an execution trace does not name parameters"

_STEP = re.compile(r"ProfilerStep#(\d+)")
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer."
_SCHEMA = re.compile(r"([\w:]+)(?:\.(\w+))?\((.*)\) -> (.*)")
DTYPE_NUMBERS = numbered("torch")
"""PyTorch's numbers of its dtypes."""


class Traced(NamedTuple):
    """A Graph, and for each of its ops the node that it was read from."""

    graph: Graph
    nodes: tuple[Node, ...]


def graph_of(nodes: Sequence[Node], path: str, step: int | None = None) -> Traced:
    """Make the Graph of a training step: of the profiler's ``step``, else of the last one, else of all ``nodes``.

    An op is the outermost call of an op that has a kernel of its own, as in a captured Graph. Raises TimesError.
    """
    within = {node.id: node for node in nodes}
    chosen = _of_step(nodes, path, step)
    ops = [node for node in chosen if _is_op(node) and not _inside_op(node, within)]
    if not ops:
        raise TimesError(f"{path}: none of its {len(chosen)} nodes is a dispatched op")
    building = _Building()
    for node in ops:
        building.add(node, _phase(node, within))
    meta = Meta(workload=path, framework="torch", captured_on="file", assumptions=(LAST_USE, ROLES))
    graph = building.graph(meta)
    validate(graph)
    return Traced(graph, tuple(ops))


def _of_step(nodes: Sequence[Node], path: str, step: int | None) -> Sequence[Node]:
    """The nodes between the mark of ``step`` and the next mark: ids rise in the order of the calls."""
    marks = {int(found[1]): node.id for node in nodes if (found := _STEP.fullmatch(node.name))}
    if step is not None and step not in marks:
        known = ", ".join(map(str, marks)) or "none"
        raise TimesError(f"{path} has no ProfilerStep#{step}; its steps: {known}")
    if not marks:
        return nodes
    first = marks[max(marks) if step is None else step]
    end = min((other for other in marks.values() if other > first), default=None)
    return [node for node in nodes if node.id >= first and (end is None or node.id < end)]


def _is_op(node: Node) -> bool:
    """Tell whether a node is an op of its own: one with a kernel, not one that is only made of others."""
    from tensortide.recorder.schema import is_composite

    return bool(node.backend) or (bool(node.schema) and not is_composite(*_name(node.schema)))


def _inside_op(node: Node, within: dict[int, Node]) -> bool:
    return any(_is_op(outer) for outer in _callers(node, within))


def _callers(node: Node, within: dict[int, Node]) -> Iterator[Node]:
    seen = {node.id}
    while (outer := within.get(node.caller)) is not None and outer.id not in seen:
        seen.add(outer.id)
        yield outer
        node = outer


def _phase(node: Node, within: dict[int, Node]) -> Phase:
    for outer in _callers(node, within):
        if outer.name.startswith(_OPTIMIZER):
            return Phase.OPTIMIZER
        if outer.forward_thread or outer.name.startswith(_BACKWARD):
            return Phase.BACKWARD
    return Phase.FORWARD


def _name(schema: str) -> tuple[str, str]:
    """Qualified name and overload."""
    found = _SCHEMA.match(schema)
    return (found[1], found[2] or "default") if found else (schema.partition("(")[0], "default")


# -- calls ------------------------------------------------------------------------------------------


class _Parameter(NamedTuple):
    name: str
    kind: str
    written: bool
    keyword: bool


def _parameters(schema: str) -> list[_Parameter]:
    found = _SCHEMA.match(schema)
    parts = re.split(r", (?![^\[(]*[\])])", found[3]) if found and found[3] else []
    result, keyword = list[_Parameter](), False
    for part in parts:
        if part == "*":
            keyword = True
            continue
        kind, _, name = part.partition("=")[0].rpartition(" ")
        result.append(_Parameter(name, kind, "!" in kind, keyword))
    return result


def _argument(value: NodeValue, kind: str) -> Value:
    if isinstance(value, TensorValue):
        return TENSOR
    if isinstance(value, tuple):
        return tuple(_argument(each, "") for each in value)
    if kind.startswith("ScalarType") and isinstance(value, int):
        return Const("dtype", DTYPE_NUMBERS.get(value, str(value)))
    if kind.startswith(("Device", "Layout", "MemoryFormat")) and value is not None:
        constant = {"Device": "device", "Layout": "layout", "MemoryFormat": "memory_format"}[kind.rstrip("?")]
        return Const(constant, str(value))
    return value


def _tensors(values: NodeValue | Sequence[NodeValue]) -> Iterator[TensorValue]:
    if isinstance(values, TensorValue):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)


def _call(node: Node) -> Call:
    if not node.schema:
        named = tuple((f"arg{i}", _argument(value, "")) for i, value in enumerate(node.inputs))
        return Call(f"{node.backend}.{node.name.replace('.', '_')}.default", named, len(named), (), _returns(node))
    name, overload = _name(node.schema)
    parameters = _parameters(node.schema)
    values = zip(parameters, node.inputs, strict=False)
    arguments, mutated, slot = list[tuple[str, Value]](), list[int](), 0
    for parameter, value in values:
        arguments.append((parameter.name, _argument(value, parameter.kind)))
        count = sum(1 for _ in _tensors(value))
        mutated += range(slot, slot + count) if parameter.written else ()
        slot += count
    positional = sum(not parameter.keyword for parameter in parameters[: len(arguments)])
    op = f"{name.replace('::', '.')}.{overload}"
    from tensortide.recorder.schema import tags_of

    return Call(op, tuple(arguments), positional, tuple(mutated), _returns(node), tags_of(name, overload))


def _returns(node: Node) -> Value:
    found = tuple(_argument(value, "") for value in node.outputs)
    return found[0] if len(found) == 1 else found


# -- storages ---------------------------------------------------------------------------------------


class _Block(msgspec.Struct):
    """A storage while its ops are added; ``phases`` are those in which it is used, ``written`` those that write it."""

    device: str
    birth: int | None
    nbytes: int = 0
    last: int = -1
    phases: set[Phase] = msgspec.field(default_factory=set)
    written: set[Phase] = msgspec.field(default_factory=set)

    def role(self, born: Phase | None) -> Role:
        if born is None:
            if Phase.OPTIMIZER in self.written:
                return Role.PARAMETER if self.phases - {Phase.OPTIMIZER} else Role.OPTIMIZER_STATE
            if self.phases == {Phase.OPTIMIZER}:
                return Role.OPTIMIZER_STATE
            return Role.BUFFER if self.written else Role.INPUT
        if born is Phase.BACKWARD and Phase.OPTIMIZER in self.phases:
            return Role.GRADIENT
        return Role.ACTIVATION if born is Phase.FORWARD and Phase.BACKWARD in self.phases else Role.TEMPORARY


class _Building:
    """Graph under construction."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.calls: dict[Call, int] = {}
        self.tensors: dict[Tensor, int] = {}
        self.places: list[int] = []  # the storage of each tensor
        self.blocks: list[_Block] = []
        self.current: dict[tuple[int, str], int] = {}

    def add(self, node: Node, phase: Phase) -> None:
        """Add the op of ``node``."""
        index, call = len(self.ops), _call(node)
        inputs = [self._used(tensor, index, phase) for tensor in _tensors(node.inputs)]
        aliased = "(" in node.schema.rpartition(" -> ")[2].strip("()")
        known = {self.key(tensor) for tensor in _tensors(node.inputs)}
        for tensor in _tensors(node.outputs):
            if self.key(tensor) not in known and not (aliased and self.key(tensor) in self.current):
                # A new storage, though its number may be that of one released before.
                self.current[self.key(tensor)] = len(self.blocks)
                self.blocks.append(_Block(tensor.device, index))
                known.add(self.key(tensor))
        outputs = [self._used(tensor, index, phase) for tensor in _tensors(node.outputs)]
        for slot in call.mutated:
            self.blocks[self.places[inputs[slot]]].written.add(phase)
        self.ops.append(Op(self.calls.setdefault(call, len(self.calls)), tuple(inputs), tuple(outputs), phase))

    def graph(self, meta: Meta) -> Graph:
        """The Graph of the ops so far."""
        storages = []
        for block in self.blocks:
            born = None if block.birth is None else self.ops[block.birth].phase
            death = None if born is None else block.last + 1
            storages.append(Storage(block.nbytes, block.device, block.role(born), block.birth, death))
        tables = tuple(self.ops), tuple(self.calls), tuple(self.tensors), tuple(storages)
        return Graph(*tables, named=tuple(self._named(storages)), meta=meta)

    def _named(self, storages: Sequence[Storage]) -> Iterator[Named]:
        """The largest tensor of each parameter and optimizer state, under a number: the trace has no names."""
        tensors = list(self.tensors)
        largest: dict[int, int] = {}
        for number, tensor in enumerate(tensors):
            if tensor.numel > tensors[largest.setdefault(tensor.storage, number)].numel:
                largest[tensor.storage] = number
        for place, number in sorted(largest.items()):
            role = storages[place].role
            if role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
                yield Named(f"{role.value} {place}", role, number, role is Role.PARAMETER)

    @staticmethod
    def key(tensor: TensorValue) -> tuple[int, str]:
        return tensor.storage, tensor.device

    def _used(self, tensor: TensorValue, index: int, phase: Phase) -> int:
        """The number of ``tensor``, which op ``index`` uses."""
        place = self.current.setdefault(self.key(tensor), len(self.blocks))
        if place == len(self.blocks):
            self.blocks.append(_Block(tensor.device, None))
        block = self.blocks[place]
        view = Tensor(place, tensor.dtype, tensor.shape, tensor.strides, tensor.offset)
        block.nbytes = max(block.nbytes, extent_bytes(view))
        block.last = index
        block.phases.add(phase)
        number = self.tensors.setdefault(view, len(self.tensors))
        if number == len(self.places):
            self.places.append(place)
        return number


# --- durations -----------------------------------------------------------------------------------------


def durations_of(traced: Traced, trace: Trace) -> Durations:
    """Durations of the ops of ``traced`` from ``trace``: of the call with the op's number and name.

    Raises TimesError if no op has one.
    """
    calls = {op.record: op for op in trace.ops if op.record is not None}
    time = timer(traced.graph, trace)
    joined: list[HostOp | None] = []
    reasons: dict[int, str] = {}
    for index, node in enumerate(traced.nodes):
        call = calls.get(node.record)
        if call is None:
            reasons[index] = f"the profiler's trace has no call number {node.record}"
        elif call.name != node.name:
            reasons[index] = f"call number {node.record} of the profiler's trace is {call.name}"
        joined.append(None if index in reasons else call)
    if len(reasons) == len(traced.nodes):
        raise TimesError(
            f"{trace.path} is of another run: of {len(joined):,} ops of the execution trace none has its number and "
            f"name there ({reasons[0]}).\nTake both traces in one run: profile(execution_trace_observer=...)."
        )
    found = f"{len(joined) - len(reasons):,} of {len(joined):,} ops found by number and name"
    return from_samples(
        traced.graph,
        [[] if call is None else [time(index, call)] for index, call in enumerate(joined)],
        missing=reasons.__getitem__,
        source=f"{trace.path}; {found}",
        resolver=resolver,
        how="trace",
        clock="kernel" if trace.kernels else "wall",
        notes=(found,),
    )
