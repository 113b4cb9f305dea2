"""Names of ops and storages for a reader: what they are, in which module, made by which line of code."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.graph.effects import only_allocates
from tensortide.graph.model import describe
from tensortide.reports.blocks import Column
from tensortide.reports.layout import tidy
from tensortide.reports.places import pattern, source_place, storage_homes, widest_tensors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from tensortide.graph.model import Graph
    from tensortide.timelines import Idleness, Life

__all__ = ["Names", "Stored", "op_text", "short", "source_columns", "stored_columns"]


def short(name: str) -> str:
    """Leave out of the name of an op or storage what is the same in most."""
    return tidy(name.removeprefix("aten.").removeprefix("dtr.").removesuffix(".default"))


def op_text(graph: Graph, op: int) -> str:
    """Speak of an op: number, name, module and line. -1 is what exists before the step."""
    if op < 0:
        return "what exists before the step"
    view = graph[op]
    place = tidy(source_place(graph, graph.ops[op].source))
    module = f" in {tidy(view.module)}" if view.module not in ("", "(outside)") else ""
    return f"op {op}, {short(view.name)}{module}{f' ({place})' if place else ''}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage (a tensor in mode ``compat``): its name, and where it comes from.

    ``op`` is the op that fills it, or for what exists before the step the first that uses it (-1: none); ``source`` is
    the line of ``code`` of that op.
    """

    index: int
    full_name: str
    role: str
    shape: str
    nbytes: int
    module: str
    op: int
    op_name: str
    source: str
    code: str

    @property
    def name(self) -> str:
        """Its name within its module, or else its role."""
        return self.full_name.removeprefix(f"{self.module}.") or self.role.replace("_", " ")

    @property
    def label(self) -> str:
        """Its module and name, or its index where it has no name."""
        name = self.name if self.full_name else f"{self.name} {self.index}"
        return name if self.module in ("", "(outside)", "(root)") else f"{self.module}: {name}"

    @property
    def kind(self) -> Hashable:
        """Equal for those that are alike: of one size and role, made by one line in modules that differ by number."""
        return self.role, self.nbytes, pattern(self.full_name), pattern(self.module), self.op_name, self.source


class Names:
    """Names of the storages (tensors in mode ``compat``) of an analysis."""

    def __init__(self, idle: Idleness) -> None:
        self._idle = idle
        self._lives = {life.index: life for life in idle.lives}
        self._homes = functools.cache(lambda: storage_homes(idle.graph))
        self._widest = functools.cache(lambda: widest_tensors(idle.graph))
        self._known: dict[int, Stored] = {}

    def __call__(self, index: int) -> Stored:
        """Describe storage or tensor ``index``."""
        if index not in self._known:
            self._known[index] = self._stored(index)
        return self._known[index]

    def _stored(self, index: int) -> Stored:
        idle, graph, life = self._idle, self._idle.graph, self._lives[index]
        by_storage = idle.mode == "storage"
        storage = index if by_storage else graph.tensors[index].storage
        op, record = _filler(graph, life, storage), graph.storages[storage]
        view = None if op < 0 else graph[op]
        op_name = "" if view is None else short(view.name)
        born_in = view.module if view is not None and not life.persistent and not by_storage else None
        return Stored(
            index=index,
            full_name=tidy(record.name) or (op_name if record.birth is not None else ""),
            role=record.role.value,
            shape=self._widest().get(index, "") if by_storage else describe(graph.tensors[index]),
            nbytes=life.nbytes,
            module=tidy(born_in or graph.module_path(self._homes()[storage])),
            op=op,
            op_name=op_name,
            source="" if view is None else tidy(source_place(graph, graph.ops[op].source)),
            code=tidy(view.source.code) if view is not None and view.source else "",
        )


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


def stored_columns(rows: Sequence[Stored]) -> Iterator[Column]:
    """Name storages, and say where they come from."""
    yield Column("tensor", "Tensor", "text", tuple(one.label for one in rows), fold=True)
    yield Column("name", "", "text", tuple(one.full_name for one in rows), data=True)
    yield Column("role", "Role", "role", tuple(one.role for one in rows))
    yield Column("shape", "Shape", "text", tuple(one.shape for one in rows))
    yield Column("size", "Bytes", "bytes", tuple(one.nbytes for one in rows), sum=True)
    yield Column("module", "", "path", tuple(one.module for one in rows), data=True)
    yield from source_columns(rows)


def source_columns(rows: Sequence[Stored]) -> Iterator[Column]:
    """Show the op that fills a storage, and its line of code if that is known of any."""
    sources = tuple(one.source for one in rows)
    yield Column("filled_by", "", "op", tuple(one.op for one in rows), data=True)
    yield Column("op_name", "", "text", tuple(one.op_name for one in rows), data=True)
    yield Column("source", "Source", "path", sources, fold=True, data=not any(sources))
    yield Column("code", "", "code", tuple(one.code for one in rows), data=True)
