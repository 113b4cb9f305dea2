"""Gradients that autograd sums in place in an ordinary run, and out of place while a dispatch mode is active."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.run.block import storage_of
from tensortide.run.operators import Operator
from tensortide.run.torch_compat import owners_of_storage, owners_of_tensor

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime

SUM, SUM_IN_PLACE = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
Owners: TypeAlias = tuple[int, int, int, int]
"""References to a tensor that an op is given, of Python and of C++, and those to its storage."""


def owners(runtime: Runtime, args: Sequence[Any]) -> Owners:
    """Count those of the first of ``args``, to which the caller has no reference of its own."""
    storage = storage_of(args[0])
    value = runtime.storages.known.get(storage._cdata)
    retained = value is not None and value.block.own is storage  # a plan's own reference
    of_storage = sys.getrefcount(storage) - retained, owners_of_storage(storage._cdata)
    return sys.getrefcount(args[0]), owners_of_tensor(args[0]), *of_storage


def unshared(runtime: Runtime) -> Owners:
    """``owners`` of a sum of gradients that autograd makes under ``runtime``, which is open, where nothing else refers
    to the first operand: its memory can take the result, as in an ordinary run, and nobody can tell the difference."""
    found: list[Owners] = []

    def counting(action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if operator.func is SUM:
            found.append(owners(runtime, args))
        return action(operator, args, kwargs)

    engine = runtime.engine
    watchers, runtime.watchers[:] = [*runtime.watchers], [counting]
    listeners, engine.listeners[:] = [*engine.listeners], []
    budget_bytes, engine.budget = engine.budget, UNLIMITED
    try:
        with torch.inference_mode(False), torch.enable_grad():
            x = torch.ones(2, device=runtime.device, requires_grad=True).exp()
            torch.stack([x.sin(), x.cos()]).sum().backward()
            del x
        runtime.promote()  # what is released is over before anybody listens again
    finally:
        runtime.watchers[:], engine.listeners[:], engine.budget = watchers, listeners, budget_bytes
    (counted,) = found
    return counted
