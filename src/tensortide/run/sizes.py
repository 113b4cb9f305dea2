"""Bytes that a call will allocate: by rule, by a trial on tensors without memory, or as an earlier call did."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.memory.workspace import workspace_of
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import schema_of
from tensortide.recorder.torch_compat import pytree
from tensortide.run.block import Hole, Template
from tensortide.run.operators import RESIZING, Operator
from tensortide.run.torch_compat import BelowAutograd, NoAutocast

_LONG = 8
"""Bytes of an index."""


def _count(hole: Hole) -> int:
    return math.prod(hole.size)


def _positions(args: Sequence[Any]) -> int:
    """Most bytes of the positions of what is not zero in a tensor."""
    return _count(args[0]) * max(1, len(args[0].size)) * _LONG


def _entries(args: Sequence[Any]) -> int:
    """Most bytes of a part of a tensor."""
    hole: Hole = args[0]
    return _count(hole) * hole.dtype.itemsize


def _masked(args: Sequence[Any]) -> int | None:
    masks = any(isinstance(index, Hole) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return _entries(args) if masks else None


def _unique(args: Sequence[Any]) -> int:
    return _entries(args) + 2 * _count(args[0]) * _LONG


DYNAMIC: dict[str, Callable[[Sequence[Any]], int | None]] = {
    "aten::nonzero": _positions,
    "aten::argwhere": _positions,
    "aten::masked_select": _entries,
    "aten::index": _masked,
    "aten::_unique": _unique,
    "aten::_unique2": _unique,
    "aten::unique_consecutive": _unique,
    "aten::unique_dim": _unique,
    "aten::unique_dim_consecutive": _unique,
}
"""Most bytes that an op makes whose results are as large as the data has it; None for a call of which it is known."""
_MOST = 1 << 16
"""Calls that are remembered at once."""


_marks = (number * 0x9E3779B97F4A7C15 % (1 << 64) >> 2 for number in itertools.count(1))


@dataclass(slots=True)
class Room:
    """Bytes that one kind of call allocates: as many as are known, 0 where nothing but the call itself can tell; and
    those of its kernel's workspace. ``open``: the next call is measured; ``varies``: so is every one."""

    nbytes: int
    workspace_bytes: int = 0
    open: bool = False
    varies: bool = False
    cost_ns: int = 0
    """The least time that such a call has taken, if any was measured: the first ones wait for pages, and others take
    turns with other work."""
    timings: int = 0
    """Calls that were timed by events."""
    mark: int = field(default_factory=lambda: next(_marks))
    """A number, of bits as if drawn, that tells this kind of call from others."""

    def learn(self, nbytes: int, most_bytes: int | None) -> None:
        """The call has allocated ``nbytes``: more than expected where a kernel has memory of its own to return; and
        ``most_bytes`` at once, if that was measured."""
        if nbytes > self.nbytes:
            self.nbytes = nbytes
        if most_bytes is not None:
            self.workspace_bytes = max(most_bytes - nbytes, self.workspace_bytes if self.varies else 0)
            self.open = self.varies

    def timed(self, cost_ns: int) -> None:
        """Such a call took ``cost_ns``."""
        self.cost_ns = min(cost_ns, self.cost_ns or cost_ns)


NO_ROOM = Room(0)


class Sizes:
    """Remembers what calls allocated on ``device``; what was never called is run on tensors without memory first.
    ``workspace``: what kernels take while they run counts. It is measured in the first call of each kind; before that,
    there are rules (``memory.workspace``)."""

    def __init__(self, device: str, workspace: bool) -> None:
        self.device, self.workspace = device, workspace
        self._known: dict[Any, Room] = {}

    def room(
        self,
        operator: Operator,
        marks: list[Any],
        template: Template,
        named: dict[str, Template],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Room:
        """Room for a call of ``operator`` with ``marks``: as a ``template`` and ``named``, with these arguments."""
        if operator.factory:  # what arange makes depends on the values of its numbers
            marks = [*marks, repr(args), repr(kwargs)]
        key = (id(operator), *marks)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = self._expected(operator, template, named)
        return known

    def _expected(self, operator: Operator, template: Template, named: dict[str, Template]) -> Room:
        name = operator.func._schema.name
        most = DYNAMIC[name](template) if name in DYNAMIC else None
        if most is not None:
            return Room(most, open=self.workspace, varies=True)
        tried = operator.allocates and (not operator.foreign or (operator.believed and not operator.factory))
        room = self._on_meta(operator.func, template, named) if tried else Room(0)
        room.open = self.workspace and not operator.factory and name not in RESIZING
        return room

    def _on_meta(self, func: Callable[..., Any], args: Template, kwargs: dict[str, Template]) -> Room:
        """Room by a record of the call on tensors without memory."""
        recorder = Recorder()
        try:
            args, kwargs = pytree.tree_map_only(
                Hole, _bare, (args, kwargs), is_leaf=lambda item: isinstance(item, Hole)
            )
            if "device" in kwargs:
                kwargs = {**kwargs, "device": torch.device("meta")}
            with NoAutocast(), BelowAutograd():
                result = recorder.record(func, schema_of(func), args, kwargs)
        except Exception:  # noqa: BLE001  # of another library
            return Room(0)
        made = sum(s.nbytes for s in recorder.storages if s.birth is not None)
        resized = sum(s.nbytes for s in recorder.storages if s.death is not None)
        del result
        graph = recorder.graph(replace(storage, device=self.device) for storage in recorder.storages)
        copied = min(made, resized)  # from the old bytes to the new ones
        return Room(max(0, made - resized), copied + workspace_of(graph, 0, self.device) if self.workspace else 0)


@functools.cache
def sizes_on(device: torch.device, workspace: bool, threads: int) -> Sizes:
    """Sizes of what ops allocate on ``device`` with as many ``threads``, learnt under all budgets so far."""
    return Sizes(str(device), workspace)


def _bare(hole: Hole) -> torch.Tensor:
    return torch.empty_strided(hole.size, hole.stride, dtype=hole.dtype, device="meta")
