"""Names of ops and storages for a reader: what they are, in which module, made by which line of code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tensortide.graph.effects import only_allocates
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH, UNKNOWN_DEVICE, Graph, describe
from tensortide.graph.module_paths import pattern
from tensortide.graph.roles import looks
from tensortide.reports.pictures import Series
from tensortide.reports.render.values import short, tidy
from tensortide.shown import Show
from tensortide.timelines.resident import storage_homes, widest_tensors

if TYPE_CHECKING:
    from tensortide.timelines import Idleness, Life

NOWHERE = ("", OUTSIDE_PATH)
"""Paths of what is in no module."""


def signatures(graph: Graph) -> tuple[str, ...]:
    """Signature of each op: ``f32[8,16], f32[16,4] -> f32[8,4]``."""
    shown = [describe(tensor) for tensor in graph.tensors]
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
    for op in graph.ops:
        if (key := (op.inputs, op.outputs)) not in known:
            inputs, outputs = (", ".join([shown[i] for i in side]) for side in key)
            known[key] = f"{inputs} -> {outputs}".strip()
    return tuple(known[op.inputs, op.outputs] for op in graph.ops)


def source_place(graph: Graph, index: int) -> str:
    """Source line ``index`` of ``graph``, short enough to show: ``train.py:12``."""
    return "" if index < 0 else f"{PurePath(graph.sources[index].file).name}:{graph.sources[index].line}"


def storage_texts(graph: Graph) -> list[str]:
    """Name every storage for a reader: as the model does, or by its tensor and the op that makes it."""
    widest, births = widest_tensors(graph), [storage.birth for storage in graph.storages]
    makers = ["before" if birth is None else short(graph[birth].name) for birth in births]
    return [one.name or f"{widest.get(i, 'bytes')} of {makers[i]}" for i, one in enumerate(graph.storages)]


def role_series(by_role: Mapping[str, Any]) -> tuple[Series, ...]:
    """Stack the bytes of the roles that occur, in the order of the memory chart."""
    shown = [(role, look) for role, look in looks().items() if role in by_role]
    return tuple(Series(r, r.replace("_", " "), tuple(by_role[r].tolist()), look.band.label) for r, look in shown)


def device_text(device: str) -> str:
    """A device in a sentence."""
    return "an unknown device" if device == UNKNOWN_DEVICE else tidy(device)


def op_text(graph: Graph, op: int) -> str:
    """Speak of an op: number, name, module and line. -1 is what exists before the step."""
    if op < 0:
        return "what exists before the step"
    view = graph[op]
    place = tidy(source_place(graph, graph.ops[op].source))
    module = f" in {tidy(view.module)}" if view.module not in NOWHERE else ""
    return f"op {op}, {short(view.name)}{module}{f' ({place})' if place else ''}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage (a tensor in mode ``compat``): its name, and where it comes from.

    ``filled_by_op`` is the op that fills it, or for what exists before the step the first that uses it (-1: none);
    ``source`` is the line of ``code`` of that op.
    """

    index: int
    name: str
    role: Annotated[str, Show("Role", "role", pick=True)]
    shape: Annotated[str, Show("Shape")]
    size_bytes: Annotated[int, Show("Bytes", sum=True)]
    module: Annotated[str, Show(unit="path", data=True)]
    filled_by_op: int
    op_name: str
    source: Annotated[str, Show("Source", "path", fold=True, if_any=True)]
    code: Annotated[str, Show(unit="code", data=True)]

    @property
    def short_name(self) -> str:
        """Its name within its module, or else its role."""
        return self.name.removeprefix(f"{self.module}.") or self.role.replace("_", " ")

    @property
    def tensor(self) -> Annotated[str, Show("Tensor", fold=True)]:
        """Its module and name, or its index where it has no name."""
        name = self.short_name if self.name else f"{self.short_name} {self.index}"
        return name if self.module in (*NOWHERE, ROOT_PATH) else f"{self.module}: {name}"

    @property
    def kind(self) -> Hashable:
        """Equal for those that are alike: of one size and role, made by one line in modules that differ by number."""
        return self.role, self.size_bytes, pattern(self.name), pattern(self.module), self.op_name, self.source


Names: TypeAlias = Callable[[int], Stored]
FILLED = ("filled_by_op", "op_name", "source", "code")
STORED = ("tensor", "name", "role", "shape", "size_bytes", "module", *FILLED)
"""Columns that name a storage, and say where it comes from; those of the op that fills it come last."""


def names_of(idle: Idleness) -> Names:
    """Make a function that describes a storage (a tensor in mode ``compat``) of an analysis by its index."""
    graph, by_storage, lives = idle.graph, idle.mode == "storage", {life.index: life for life in idle.lives}
    homes, widest = storage_homes(graph), widest_tensors(graph)

    @cache
    def stored(index: int) -> Stored:
        life, storage = lives[index], index if by_storage else graph.tensors[index].storage
        op, record = _filler(graph, life, storage), graph.storages[storage]
        view = None if op < 0 else graph[op]
        op_name = "" if view is None else short(view.name)
        born_in = view.module if view is not None and not life.persistent and not by_storage else None
        return Stored(
            index=index,
            name=tidy(record.name) or (op_name if record.birth is not None else ""),
            role=record.role.value,
            shape=widest.get(index, "") if by_storage else describe(graph.tensors[index]),
            size_bytes=life.nbytes,
            module=tidy(born_in or graph.module_path(homes[storage])),
            filled_by_op=op,
            op_name=op_name,
            source="" if view is None else tidy(source_place(graph, graph.ops[op].source)),
            code=tidy(view.source.code) if view is not None and view.source else "",
        )

    return stored


def _filler(graph: Graph, life: Life, storage: int) -> int:
    """Find the op that makes the contents of ``storage``: its first use, or if that only allocates, the first that
    writes to it; -1 for what no op touches."""
    if not life.uses or not only_allocates(graph.calls[graph.ops[life.uses[0]].call]):
        return life.uses[0] if life.uses else -1
    for index in life.uses:
        op = graph.ops[index]
        if any(graph.tensors[op.inputs[slot]].storage == storage for slot in graph.calls[op.call].mutated):
            return index
    return life.uses[0]
