"""How many bytes an op will allocate, known before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tensortide.run.operators import Operator
from tensortide.run.template import Hole, Template, storage_of, tensors_of

_MOST = 1 << 16
"""Calls that are remembered at once."""


class Room:
    """Bytes that one kind of call allocates: as many as are known, 0 where nothing but the call itself can tell."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def learn(self, nbytes: int) -> None:
        """The call has allocated ``nbytes``: more than expected where a kernel has memory of its own to return."""
        if nbytes > self.nbytes:
            self.nbytes = nbytes


class Sizes:
    """Remembers what calls allocated; what was never called is run on tensors without memory first."""

    def __init__(self) -> None:
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
        """What a call of ``operator`` with ``marks`` takes: it is ``template`` and ``named``, of these arguments."""
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
            known = self._known[key] = Room(_on_meta(operator.func, template, named))
        return known


@functools.cache
def sizes_on(device: torch.device) -> Sizes:
    """What is known of ops on ``device``, from all budgets so far."""
    return Sizes()


def _on_meta(func: Callable[..., Any], args: Template, kwargs: dict[str, Template]) -> int:
    def bare(hole: Hole) -> torch.Tensor:
        return torch.empty_strided(hole.size, hole.stride, dtype=hole.dtype, device="meta")

    try:
        args, kwargs = tree_map_only(Hole, bare, (args, kwargs), is_leaf=lambda item: isinstance(item, Hole))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("meta")}
        given = {(store := storage_of(t))._cdata: store.nbytes() for t in tensors_of([*args, *kwargs.values()])}
        with torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
            results = tensors_of([func(*args, **kwargs)])
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
        return 0
    after = {(store := storage_of(t))._cdata: store.nbytes() for t in results}
    return sum(max(0, nbytes - given.get(key, 0)) for key, nbytes in after.items())
