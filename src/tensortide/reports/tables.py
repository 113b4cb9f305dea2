"""The columns of a report: one row per op and per storage, with what repeats interned."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Generic, TypeVar

from tensortide.cost import PHASES
from tensortide.graph.model import OUTSIDE, Graph, Op, Tensor, describe
from tensortide.graph.roles import stacked
from tensortide.reports.columns import OpTable, SourceRow, StorageTable

if TYPE_CHECKING:
    from tensortide.cost import Count
    from tensortide.timelines import StorageTimeline

__all__ = ["PHASES", "home_of", "op_table", "phase_of", "source_rows", "storage_table"]

RECOMPUTE = "recompute"
"""Phase of the ops of a report that compute again what was dropped; in the graph that is a flag."""

K = TypeVar("K", bound=Hashable)


class Interned(Generic[K]):
    """Distinct values in order of first appearance, each with its index."""

    def __init__(self) -> None:
        self.index: dict[K, int] = {}

    def __call__(self, value: K) -> int:
        return self.index.setdefault(value, len(self.index))

    @property
    def values(self) -> tuple[K, ...]:
        return tuple(self.index)


def phase_of(op: Op) -> str:
    """Phase of ``op`` in a report: recomputation is one of its own."""
    return RECOMPUTE if op.recompute else op.phase.value


def signatures(graph: Graph) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Distinct signatures of the ops (``f32[8,16], f32[16,4] -> f32[8,4]``), and the index of each op's own."""
    shown = [describe(tensor) for tensor in graph.tensors]
    texts, known = Interned[str](), dict[tuple[tuple[int, ...], tuple[int, ...]], int]()
    column = []
    for op in graph.ops:
        key = (op.inputs, op.outputs)
        if key not in known:
            inputs, outputs = (", ".join([shown[i] for i in side]) for side in key)
            known[key] = texts(f"{inputs} -> {outputs}".strip())
        column.append(known[key])
    return texts.values, tuple(column)


def op_table(graph: Graph, count: Count, eager: StorageTimeline) -> OpTable:
    """The columns of ``graph.ops``."""
    names, paths, hows = Interned[str](), Interned[str](), Interned[str]()
    how = tuple(hows(item.how) for item in count.costs)
    costs = [item.cost for item in count.costs]
    texts, shapes = signatures(graph)
    calls = [names(call.op) for call in graph.calls]
    for index in range(OUTSIDE, len(graph.modules)):
        paths(graph.module_path(index))
    return OpTable(
        names=names.values,
        signatures=texts,
        paths=paths.values,
        phases=PHASES,
        hows=hows.values,
        name=tuple(calls[op.call] for op in graph.ops),
        shapes=shapes,
        module=tuple(paths(graph.module_path(op.module)) for op in graph.ops),
        phase=tuple(PHASES.index(phase_of(op)) for op in graph.ops),
        source=tuple(op.source for op in graph.ops),
        how=how,
        flops=tuple(None if c is None else c.flops for c in costs),
        macs=tuple(None if c is None else c.macs for c in costs),
        accessed_bytes=tuple(None if c is None else c.bytes for c in costs),
        workspace_bytes=tuple(eager.workspace.tolist()),
        resident_bytes=tuple(eager.resident.tolist()),
        untaken=_untaken(graph, count),
    )


def _untaken(graph: Graph, count: Count) -> tuple[int, ...]:
    """The ops of a conditional's arms that no total takes."""
    if not graph.branches:
        return ()
    taken = count.by(lambda op: op.branch)
    return tuple(i for i, op in enumerate(graph.ops) if op.branch not in taken)


def storage_table(graph: Graph, paths: Sequence[str], device: str) -> StorageTable:
    """The columns of the storages of ``graph``. Those that are not on ``device`` are never alive there."""
    from tensortide.memory.lifetimes import lifetimes

    lives, early = lifetimes(graph, "eager"), lifetimes(graph, "last_use")
    for away in (i for i, storage in enumerate(graph.storages) if storage.device != device):
        lives.deaths[away] = early.deaths[away] = lives.births[away]
    homes, owners = {path: i for i, path in enumerate(paths)}, storage_homes(graph)
    labels, tensors, shapes = Interned[str](), Interned[str](), widest_tensors(graph)
    roles = stacked()
    numbers = {role: i for i, role in enumerate(roles)}
    label = tuple(labels(storage.name) for storage in graph.storages)
    tensor = tuple(tensors(shapes.get(i, "")) for i in range(len(graph.storages)))
    return StorageTable(
        roles=tuple(role.value for role in roles),
        labels=labels.values,
        tensors=tensors.values,
        nbytes=tuple(lives.nbytes.tolist()),
        role=tuple(numbers[storage.role] for storage in graph.storages),
        label=label,
        tensor=tensor,
        module=tuple(homes[graph.module_path(owner)] for owner in owners),
        birth=tuple(lives.births.tolist()),
        death=tuple(lives.deaths.tolist()),
        last_use_death=tuple(early.deaths.tolist()),
    )


def widest_tensors(graph: Graph) -> dict[int, str]:
    """Dtype and shape of the largest tensor in each storage: what the storage is, for a reader."""
    widest: dict[int, Tensor] = {}
    for tensor in graph.tensors:
        known = widest.get(tensor.storage)
        if known is None or tensor.region_bytes > known.region_bytes:
            widest[tensor.storage] = tensor
    return {storage: describe(tensor) for storage, tensor in widest.items()}


def storage_homes(graph: Graph) -> list[int]:
    """Module of each storage: that of the parameter it belongs to by name, else that of the op that allocated it."""
    known = {module.path: i for i, module in enumerate(graph.modules)}
    homes = []
    for storage in graph.storages:
        home = home_of(storage.name, known) if storage.role.row.of_module else OUTSIDE
        born = OUTSIDE if storage.birth is None else graph.ops[storage.birth].module
        homes.append(born if home == OUTSIDE else home)
    return homes


def home_of(name: str, known: Mapping[str, int]) -> int:
    """The module that owns the parameter, buffer, gradient or state ``name``: the longest known prefix of it."""
    prefix = name
    while prefix:
        prefix = prefix.rpartition(".")[0]
        if prefix in known:
            return known[prefix]
    return OUTSIDE


def source_rows(graph: Graph) -> tuple[SourceRow, ...]:
    """The lines of code of the ops, with a short place to show."""
    return tuple(
        SourceRow(f"{PurePath(source.file).name}:{source.line}", source.file, source.line, source.function, source.code)
        for source in graph.sources
    )
