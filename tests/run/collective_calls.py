"""Calls of every collective, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _coalescing_manager

from tensortide.recorder.recorder import Mode
from tensortide.run.block import tensors_of


class Changes(Mode):
    """Remembers the tensors that communication ops get, and copies of them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, dict[str, list[tuple[Tensor, Tensor]]]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "c10d":
            names = [argument.name for argument in func._schema.arguments]
            given = dict(zip(names, args, strict=False)) | (kwargs or {})
            copies = {name: [(t, t.clone()) for t in tensors_of([value])] for name, value in given.items()}
            self.calls.append((func._schema.name, copies))
        return func(*args, **(kwargs or {}))

    def changed(self) -> dict[str, list[str]]:
        """Names of the arguments that each op changed."""
        found: dict[str, set[str]] = {}
        for op, arguments in self.calls:
            changes = found.setdefault(op, set())
            changes |= {
                name
                for name, pairs in arguments.items()
                if any(not torch.equal(t.to_dense(), old.to_dense()) for t, old in pairs)
            }
        return {op: sorted(names) for op, names in found.items()}


def calls(rank: int, world: int) -> dict[str, Callable[[], Any]]:
    """Every collective, by any name, on tensors that differ from rank to rank."""
    root, here = dist.group.WORLD, rank == 0

    def own(count: int = 4) -> Tensor:
        return torch.arange(1.0, count + 1) + 10 * rank

    def several() -> list[Tensor]:
        return [own() + 100 * part for part in range(world)]

    def message() -> Any:
        if here:
            return [dist.isend(own(), 1)]
        return [dist.irecv(own(), 0)] if rank == 1 else []

    def any_message() -> Any:
        if here:
            return [dist.isend(own(), 1)]
        return [dist.irecv(own())] if rank == 1 else []

    def coalesced(call: Callable[[Tensor], Any]) -> Any:
        with _coalescing_manager(async_ops=True) as manager:
            call(own())
            call(own(8))
        return manager.works

    return {
        "all_reduce": lambda: dist.all_reduce(own(), async_op=True),
        "all_reduce_sparse": lambda: dist.all_reduce(torch.diag(own()).to_sparse(), async_op=True),
        "all_reduce_coalesced": lambda: coalesced(dist.all_reduce),
        "broadcast": lambda: dist.broadcast(own(), 0, async_op=True),
        "reduce": lambda: dist.reduce(own(), 0, async_op=True),
        "all_gather": lambda: dist.all_gather(several(), own(), async_op=True),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(own(4 * world), own(), async_op=True),
        "all_gather_coalesced": lambda: coalesced(lambda t: dist.all_gather_into_tensor(t.repeat(world), t)),
        "reduce_scatter": lambda: dist.reduce_scatter(own(), several(), async_op=True),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(own(), own(4 * world), async_op=True),
        "reduce_scatter_coalesced": lambda: coalesced(lambda t: dist.reduce_scatter_tensor(t.clone(), t.repeat(world))),
        "gather": lambda: dist.gather(own(), several() if here else None, 0, async_op=True),
        "scatter": lambda: dist.scatter(own(), several() if here else None, 0, async_op=True),
        "all_to_all": lambda: dist.all_to_all(several(), several(), async_op=True),
        "all_to_all_single": lambda: dist.all_to_all_single(own(4 * world), own(4 * world), async_op=True),
        "message": message,
        "any_message": any_message,
        "barrier": lambda: dist.barrier(root, async_op=True),
    }


def changed(rank: int, world: int) -> dict[str, list[str]]:
    """Names of the arguments that each communication op changes on this rank."""
    with Changes() as mode:
        for call in calls(rank, world).values():
            works = call()
            for work in works if isinstance(works, list) else [works]:
                work.wait()
    found: dict[str, list[str]] = mode.changed()
    return found
