"""Values of a step: the contents of a storage at one version. Who makes each, who reads it, and the bytes to send."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensortide.graph.effects import CONSTANTS
from tensortide.graph.model import Graph, Role
from tensortide.placements.graphs.closures import SCALAR_BYTES

GIVEN = -1
"""The writer of a value that exists before the step."""


@dataclass(frozen=True)
class Value:
    """The contents of ``storage`` from the end of op ``writer`` until another op writes it: ``next`` is that value.

    ``nbytes`` is what a copy takes: from the byte ``low`` to the last one that any reader of this version reads, which
    is the whole storage unless all read a part. ``free``: nothing, or a constant scalar; it travels without a transfer,
    and ``nbytes`` is 0.
    """

    storage: int
    writer: int
    low: int
    nbytes: int
    free: bool
    readers: tuple[int, ...]
    next: int


@dataclass
class _Open:
    storage: int
    writer: int
    readers: dict[int, None] = field(default_factory=dict)
    low: int = -1
    high: int = -1
    next: int = GIVEN


@dataclass(frozen=True)
class Values:
    """The values of ``graph``, in the order in which they are made, and by op what it ``reads`` and ``writes``."""

    graph: Graph
    values: tuple[Value, ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]


def values_of(graph: Graph) -> Values:
    """The values of ``graph``, which has no loops."""
    found: list[_Open] = []
    now: dict[int, int] = {}
    reads, writes = [], []
    for storage, held in enumerate(graph.storages):
        if held.birth is None:
            now[storage] = len(found)
            found.append(_Open(storage, GIVEN))
    for op, record in enumerate(graph.ops):
        seen = dict[int, None]()
        for tensor in record.inputs:
            storage = graph.tensors[tensor].storage
            value = found[now[storage]]
            low, high = _extent(graph, tensor)
            if high > low:
                value.low = low if value.low < 0 else min(value.low, low)
                value.high = max(value.high, high)
            value.readers[op] = seen[now[storage]] = None
        reads.append(tuple(seen))
        made = []
        for storage in graph.index.writes[op]:
            if storage in now:
                found[now[storage]].next = len(found)
            now[storage] = len(found)
            made.append(len(found))
            found.append(_Open(storage, op))
        writes.append(tuple(made))
    return Values(graph, tuple(_closed(graph, value) for value in found), tuple(reads), tuple(writes))


def _closed(graph: Graph, value: _Open) -> Value:
    held = graph.storages[value.storage]
    nbytes = min(int(held.nbytes), max(0, value.high - value.low))
    free = nbytes == 0 or (nbytes <= SCALAR_BYTES and _is_constant(graph, value))
    low = max(value.low, 0)
    return Value(value.storage, value.writer, low, 0 if free else nbytes, free, tuple(value.readers), value.next)


def _is_constant(graph: Graph, value: _Open) -> bool:
    """Return whether the value is the same in every step: given and no state, or filled with a number."""
    if value.writer == GIVEN:
        role = graph.storages[value.storage].role
        return role not in (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.GRADIENT, Role.BUFFER, Role.INPUT)
    namespace, name, *_ = graph.calls[graph.ops[value.writer].call].op.split(".")
    return namespace == "aten" and name in CONSTANTS and not graph.ops[value.writer].inputs


def _extent(graph: Graph, tensor: int) -> tuple[int, int]:
    """The first byte of a storage that a view has, and the byte after its last one."""
    view = graph.tensors[tensor]
    if 0 in view.shape:
        return 0, 0
    size = max(view.itemsize, 1)
    last = sum((int(n) - 1) * int(step) for n, step in zip(view.shape, view.strides, strict=True))
    return int(view.offset) * size, (int(view.offset) + last + 1) * size
