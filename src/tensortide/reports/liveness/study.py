"""Liveness to be shown: the analysis, the link that advice is for, and what storages are called."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from tensortide.graph.effects import only_allocates
from tensortide.graph.model import describe
from tensortide.reports.layout import tidy
from tensortide.reports.liveness.records import LivenessView, Stored
from tensortide.reports.simulation.words import short
from tensortide.reports.tables import storage_homes, widest_tensors

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.timelines import Idleness, Life
    from tensortide.timing import Link

__all__ = ["LivenessStudy", "Names"]


@dataclass(frozen=True)
class LivenessStudy:
    """An analysis with what is shown of it: figures and files are drawn from both."""

    idle: Idleness
    link: Link
    view: LivenessView
    names: Names


class Names:
    """What the storages (tensors in mode ``compat``) of an analysis are called, and where they come from."""

    def __init__(self, idle: Idleness) -> None:
        self._idle = idle
        self._lives = {life.index: life for life in idle.lives}

    @functools.cached_property
    def _homes(self) -> list[int]:
        return storage_homes(self._idle.graph)

    @functools.cached_property
    def _widest(self) -> dict[int, str]:
        return widest_tensors(self._idle.graph)

    def storage(self, index: int) -> int:
        """The storage that ``index`` is about."""
        return index if self._idle.mode == "storage" else self._idle.graph.tensors[index].storage

    def __call__(self, index: int) -> Stored:
        """Storage or tensor ``index``, for a reader."""
        graph, life = self._idle.graph, self._lives[index]
        storage = self.storage(index)
        op = _filler(graph, life, storage)
        view = None if op < 0 else graph[op]
        source = None if view is None else view.source
        shape = self._widest.get(index, "") if self._idle.mode == "storage" else describe(graph.tensors[index])
        op_name = "" if view is None else short(view.name)
        record = graph.storages[storage]
        born_in = view.module if view is not None and not life.persistent and self._idle.mode == "compat" else None
        return Stored(
            index=index,
            name=tidy(record.name) or (op_name if record.birth is not None else ""),
            role=record.role.value,
            tensor=shape,
            nbytes=life.nbytes,
            module=tidy(born_in or graph.module_path(self._homes[storage])),
            op=op,
            op_name=op_name,
            source="" if source is None else f"{PurePath(source.file).name}:{source.line}",
            code="" if source is None else tidy(source.code),
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
