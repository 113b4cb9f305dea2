"""Bytes that an op will allocate, and those of its workspace, before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tensortide.run.operators import Operator
from tensortide.run.template import Hole, Template, storage_of, tensors_of
from tensortide.run.workspace import workspace_of_call

_MOST = 1 << 16
"""Calls that are remembered at once."""


class Room:
    """Bytes that one kind of call allocates: as many as are known, 0 where nothing but the call itself can tell; and
    those of its kernel's workspace."""

    __slots__ = ("nbytes", "workspace_bytes")

    def __init__(self, nbytes: int, workspace_bytes: int = 0) -> None:
        self.nbytes, self.workspace_bytes = nbytes, workspace_bytes

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
        try:
            args, kwargs = tree_map_only(Hole, _bare, (args, kwargs), is_leaf=lambda item: isinstance(item, Hole))
            if "device" in kwargs:
                kwargs = {**kwargs, "device": torch.device("meta")}
            with torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
                nbytes = _allocated(func, args, kwargs)
                return Room(nbytes, workspace_of_call(func, args, kwargs, self.device) if self.workspace else 0)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
            return Room(0)


@functools.cache
def sizes_on(device: torch.device, workspace: bool) -> Sizes:
    """Sizes of the results of ops on ``device``, learnt under all budgets so far."""
    return Sizes(str(device), workspace)


def _bare(hole: Hole) -> torch.Tensor:
    return torch.empty_strided(hole.size, hole.stride, dtype=hole.dtype, device="meta")


def _allocated(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """Bytes of the storages that a call on tensors without memory makes."""
    given = {(store := storage_of(t))._cdata: store.nbytes() for t in tensors_of([*args, *kwargs.values()])}
    results = tensors_of([func(*args, **kwargs)])
    after = {(store := storage_of(t))._cdata: store.nbytes() for t in results}
    return sum(max(0, nbytes - given.get(key, 0)) for key, nbytes in after.items())
