"""Collectives whose other process comes only when the first has evicted all that it can: no luck decides these runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional

from tensortide.recorder.surroundings import replaced
from tensortide.run.block import storage_of
from tensortide.run.budget import Budget
from tensortide.run.in_flight import InFlight
from tests.run.collective_uses import COUNT, budget, press
from tests.run.same import identical


class Begun(NamedTuple):
    """A collective that reads and writes ``busy``; ``end`` waits for it, and returns what it leaves behind."""

    busy: list[Tensor]
    end: Callable[[], list[Tensor]]


class Signals:
    """Signals between the processes, on the store of their group. They are given once for each use of the class."""

    uses = 0

    def __init__(self) -> None:
        type(self).uses += 1
        self.store: Any = dist.distributed_c10d._get_default_store()

    def give(self, name: str) -> None:
        self.store.set(f"{name}{self.uses}", "")

    def wait(self, name: str) -> None:
        self.store.wait([f"{name}{self.uses}"])


def evict_all(memory: Budget) -> None:
    """Evict whatever nothing locks."""
    assert memory.runtime is not None
    memory.runtime.promote()
    while memory.runtime.engine.pool:
        memory.runtime.engine.evict(next(iter(memory.runtime.engine.pool)))


def resident(tensors: list[Tensor]) -> bool:
    return all(storage_of(tensor).nbytes() for tensor in tensors)


def _begun(work: Any, *tensors: Tensor) -> Begun:
    def end() -> list[Tensor]:
        work.wait()
        return list(tensors)

    return Begun(list(tensors), end)


def _reduced(y: Tensor, rank: int) -> Begun:
    return _begun(dist.all_reduce(y, async_op=True), y)


def _gathered(y: Tensor, rank: int) -> Begun:
    whole = torch.empty(2 * COUNT)
    return _begun(dist.all_gather_into_tensor(whole, y, async_op=True), whole, y)


def _scattered(y: Tensor, rank: int) -> Begun:
    part, both = torch.empty(COUNT), torch.cat([y, y * 2])
    return _begun(dist.reduce_scatter_tensor(part, both, async_op=True), part, both)


def _message(y: Tensor, rank: int) -> Begun:
    return _begun(dist.irecv(y, 1) if rank == 0 else dist.isend(y, 0), y)


def _functional_gathered(y: Tensor, rank: int) -> Begun:
    whole: Any = functional.all_gather_tensor(y, 0, _group())
    return Begun([whole.elem, y], lambda: [whole * 1, y])


def _functional_reduced(y: Tensor, rank: int) -> Begun:
    total: Any = functional.all_reduce(y, "sum", _group())
    return Begun([total.elem], lambda: [total * 1, y])


def _functional_read(y: Tensor, rank: int) -> Begun:
    """Who waits for what a collective reads has not waited for the collective."""
    ops = torch.ops._c10d_functional
    whole = ops.all_gather_into_tensor(y, 2, _group().group_name)
    ops.wait_tensor(y)
    return Begun([whole, y], lambda: [ops.wait_tensor(whole) * 1, y])


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


USES = (_reduced, _gathered, _scattered, _message, _functional_gathered, _functional_reduced, _functional_read)


def other_comes_late(rank: int, world: int, compiled: bool) -> dict[str, tuple[bool, bool, int]]:
    """For each of ``USES``, which rank 1 begins when rank 0 has evicted all that it can: whether what it uses stayed
    resident on rank 0, whether it leaves the same behind, and what is locked at last."""
    return {use.__name__: _late(use, rank, compiled) for use in USES}


def _late(use: Callable[[Tensor, int], Begun], rank: int, compiled: bool) -> tuple[bool, bool, int]:
    signals = Signals()
    x = torch.full((COUNT,), float(rank + 1))
    plain = use(x.exp(), rank).end()
    with budget(compiled=compiled) as memory:
        assert memory.runtime is not None
        if rank == 1:
            signals.wait("evicted")
        y = x.exp()
        made = [x.sin(), y.cos()]
        begun = use(y, rank)
        evict_all(memory)
        stayed = rank == 1 or (resident(begun.busy) and not resident(made[:1]))  # there it may be complete by now
        if rank == 0:
            signals.give("evicted")
        found = begun.end()
        right = all(map(identical, [*found, *made], [*plain, x.sin(), x.exp().cos()]))
        del begun, found
        press()
        return stayed, right, len(memory.runtime.engine.in_use)


def room_comes_late(rank: int, world: int, compiled: bool) -> tuple[bool, bool, int, int]:
    """The same of a functional collective for which rank 0 has room only when an earlier one is complete, which rank 1
    begins when rank 0 waits for room; and how often it waits."""
    signals, waits = Signals(), 0
    x = torch.full((COUNT,), float(rank + 1))
    long = torch.full((8 * COUNT,), float(rank + 1))
    wait = InFlight.wait

    def waiting(self: InFlight) -> None:
        nonlocal waits
        waits += 1
        signals.give("waiting")
        wait(self)

    with replaced(InFlight, "wait", waiting), budget((8 + 16 + 1 + 1) * 4 * COUNT, compiled) as memory:
        assert memory.runtime is not None
        if rank == 1:
            signals.wait("waiting")
        source, whole = long.exp(), torch.empty(16 * COUNT)
        first = dist.all_gather_into_tensor(whole, source, async_op=True)
        assert first is not None
        y = x.exp()
        if rank == 1:
            first.wait()
            del source
            signals.wait("evicted")
        begun = _functional_gathered(y, rank)
        evict_all(memory)
        stayed = rank == 1 or resident(begun.busy)
        if rank == 0:
            signals.give("evicted")
        first.wait()
        expected = torch.cat([torch.full((COUNT,), 1.0), torch.full((COUNT,), 2.0)]).exp()
        right = all(map(identical, begun.end(), [expected, x.exp()]))
        del begun, first
        press()
        return stayed, right, len(memory.runtime.engine.in_use), waits
