"""Bytes that an op will allocate, and those of its workspace, before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace
from torch.utils._pytree import tree_map_only

from tensortide.memory.workspace import workspace_of
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import schema_of
from tensortide.run.operators import Operator
from tensortide.run.template import Hole, Template

_MOST = 1 << 16
"""Calls that are remembered at once."""


@dataclass(slots=True)
class Room:
    """Bytes that one kind of call allocates: as many as are known, 0 where nothing but the call itself can tell; and
    those of its kernel's workspace."""

    nbytes: int
    workspace_bytes: int = 0

    def learn(self, nbytes: int) -> None:
        """The call has allocated ``nbytes``: more than expected where a kernel has memory of its own to return."""
        if nbytes > self.nbytes:
            self.nbytes = nbytes


NO_ROOM = Room(0)


class Sizes:
    """Remembers what calls allocated on ``device``; what was never called is run on tensors without memory first.
    ``workspace``: what kernels are known to take while they run counts."""

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
        if not operator.allocates:
            return Room(0)
        most = operator.dynamic(template) if operator.dynamic is not None else None
        if most is not None:
            return Room(most)
        if operator.factory:  # what arange makes depends on the values of its numbers
            marks = [*marks, repr(args), repr(kwargs)]
        key = (id(operator), *marks)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = self._on_meta(operator.func, template, named)
        return known

    def _on_meta(self, func: Callable[..., Any], args: Template, kwargs: dict[str, Template]) -> Room:
        """Room by a record of the call on tensors without memory."""
        recorder = Recorder()
        try:
            args, kwargs = tree_map_only(Hole, _bare, (args, kwargs), is_leaf=lambda item: isinstance(item, Hole))
            if "device" in kwargs:
                kwargs = {**kwargs, "device": torch.device("meta")}
            with torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
                result = recorder.record(func, schema_of(func), args, kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
            return Room(0)
        made = sum(s.nbytes for s in recorder.storages if s.birth is not None)
        resized = sum(s.nbytes for s in recorder.storages if s.death is not None)
        del result
        graph = recorder.graph(replace(storage, device=self.device) for storage in recorder.storages)
        return Room(max(0, made - resized), workspace_of(graph, 0, self.device) if self.workspace else 0)


@functools.cache
def sizes_on(device: torch.device, workspace: bool) -> Sizes:
    """Sizes of the results of ops on ``device``, learnt under all budgets so far."""
    return Sizes(str(device), workspace)


def _bare(hole: Hole) -> torch.Tensor:
    return torch.empty_strided(hole.size, hole.stride, dtype=hole.dtype, device="meta")
