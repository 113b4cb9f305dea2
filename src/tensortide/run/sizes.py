"""How many bytes an op will allocate, known before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tensortide.run.operators import Operator
from tensortide.run.template import Hole, Template, storage_of, tensors_of

_MOST = 1 << 16
"""Calls that are remembered at once."""


class Sizes:
    """Remembers what calls allocated; what was never called is run on tensors without memory first."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def key(self, operator: Operator, marks: list[Any], args: Any, kwargs: Any) -> Any:
        """What stands for a call of ``operator`` with ``marks``; None if it allocates nothing."""
        if not operator.allocates:
            return None
        if operator.factory:  # what arange makes depends on the values of its numbers
            marks = [*marks, repr(args), repr(kwargs)]
        return (id(operator), *marks)

    def predict(self, key: Any, operator: Operator, args: Template, kwargs: dict[str, Template]) -> int:
        """Bytes that the call is going to allocate; 0 where nothing but the call itself can tell."""
        if key is None:
            return 0
        most = operator.dynamic(args) if operator.dynamic is not None else None
        if most is not None:
            return most
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = _on_meta(operator.func, args, kwargs)
        return known

    def learn(self, key: Any, nbytes: int) -> None:
        """The call has allocated ``nbytes``: more than expected where a kernel has memory of its own to return."""
        if key is not None and self._known.get(key, nbytes) < nbytes:
            self._known[key] = nbytes


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
            results = list(tensors_of(func(*args, **kwargs)))
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
        return 0
    after = {(store := storage_of(t))._cdata: store.nbytes() for t in results}
    return sum(max(0, nbytes - given.get(key, 0)) for key, nbytes in after.items())
