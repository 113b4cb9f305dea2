"""Ways to use communication, each of which leaves the same behind under a tight budget."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED, counting, identical

COUNT = 1024
ROOM = 20 * 4 * COUNT
"""Bytes for tensors, beyond what is there: a few."""

Use = Callable[[int, Tensor], list[Tensor]]


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def press() -> None:
    """Make whatever can be evicted go."""
    held = [torch.ones(COUNT).sin()]
    for _ in range(20):
        held.append(held[-1].cos())


def gathered(rank: int, x: Tensor) -> list[Tensor]:
    found = [torch.empty(COUNT), torch.empty(COUNT)]
    dist.all_gather(found, x * 2)
    return found


def overwritten(rank: int, x: Tensor) -> list[Tensor]:
    """A value made from what a collective overwrites, and one made after that."""
    y = x * 3
    before = y.cos()
    dist.all_reduce(y)
    after = y + 1
    press()
    return [y, before, after]


def dropped(rank: int, x: Tensor) -> list[Tensor]:
    """Nobody waits, but the barrier comes after."""
    y, source = x * 3, x.exp()
    both = torch.cat([x, source])
    part, whole = torch.zeros(COUNT), torch.zeros(2 * COUNT)
    dist.all_reduce(y, async_op=True)
    dist.all_gather_into_tensor(whole, source, async_op=True)
    dist.reduce_scatter_tensor(part, both, async_op=True)
    functional.all_gather_tensor(source, 0, _group())
    press()
    dist.barrier()
    press()
    return [y, source, whole]


def messages(rank: int, x: Tensor) -> list[Tensor]:
    own, found = x.exp(), torch.empty(COUNT)
    works = [dist.isend(own, 1 - rank), dist.irecv(found, 1 - rank)]
    press()
    for work in works:
        assert work is not None
        work.wait()
    press()
    again = torch.empty(COUNT)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, own, 1 - rank), dist.P2POp(dist.irecv, again, 1 - rank)]
    ):
        work.wait()
    press()
    return [own, found, again]


def functional_results(rank: int, x: Tensor) -> list[Tensor]:
    y = x.exp()
    whole = functional.all_gather_tensor(y, 0, _group())
    part = functional.reduce_scatter_tensor(torch.cat([x, y]), "sum", 0, _group())
    press()
    found = [whole * 2, part + 1, functional.all_reduce(y, "sum", _group()) * 1]
    press()
    return [y, *found]


def functional_in_place(rank: int, x: Tensor) -> list[Tensor]:
    """What an op that stands for others has overwritten is never made again by the op before."""
    ops, name = torch.ops._c10d_functional, _group().group_name
    y, z = x * 3, x.sin()
    before = y.cos(), z.cos()
    for written in (ops.all_reduce_(y, "sum", name), ops.broadcast_(z, 1, name)):
        ops.wait_tensor(written)
    press()
    return [y, z, *before, y * z]


def halves(rank: int, x: Tensor) -> list[Tensor]:
    y = x.exp()
    works = [dist.all_reduce(half, async_op=True) for half in y.chunk(2)]
    press()
    for work in works:
        work.wait()
    return [y]


def late(rank: int, x: Tensor) -> list[Tensor]:
    """Inputs that are read until the end, and results that are used only then."""
    y, part, both = x.exp(), torch.empty(COUNT), torch.cat([x, x * 2]).exp()
    future = dist.all_reduce(y, async_op=True).get_future().then(lambda done: done.value()[0].mul(2))
    work = dist.reduce_scatter_tensor(part, both, async_op=True)
    press()
    work.wait()
    press()
    return [future.wait(), y, part, both]


def coalesced(rank: int, x: Tensor) -> list[Tensor]:
    y, z = x.exp(), x.cos()
    before = z.sin()
    with _coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(y)
        dist.all_reduce(z)
    press()
    manager.wait()
    press()
    return [y, z, before]


def backend() -> Any:
    """That of the group for the CPU: its methods run no ops."""
    return _group()._get_backend(torch.device("cpu"))


def directly(rank: int, x: Tensor) -> list[Tensor]:
    """Collectives and messages by the methods of a backend."""
    gloo, y, own, found = backend(), x.sin(), x.exp(), torch.empty(COUNT)
    before = y.cos()
    works = [gloo.allreduce([y]), gloo.send([own], 1 - rank, 0), gloo.recv([found], 1 - rank, 0)]
    press()
    for work in works:
        work.wait()
    after = y * 3
    whole = [torch.empty(COUNT), torch.empty(COUNT)]
    gloo.allgather([whole], [after]).wait()
    press()
    gloo.broadcast(after, root=1).wait()
    press()
    return [y, before, after, own, found, *whole, own * found]


def everything_else(rank: int, x: Tensor) -> list[Tensor]:
    objects: list[Tensor] = [x, x]
    dist.all_gather_object(objects, x.exp())
    part, both = torch.empty(COUNT), [x.exp(), x.cos()]
    dist.scatter(part, both if rank == 0 else None, 0)
    parts = [torch.empty(COUNT), torch.empty(COUNT)]
    dist.all_to_all(parts, both)
    dist.monitored_barrier()
    total = torch.diag(x[:8].exp()).to_sparse()
    dist.all_reduce(total)
    press()
    return [*objects, part, *parts, total.to_dense()]


USES: tuple[Use, ...] = (
    *(gathered, overwritten, dropped, messages, functional_results, functional_in_place, halves, late, coalesced),
    *(directly, everything_else),
)


class Inside:
    """A custom op inside which processes communicate, by a method of a backend if ``direct``, which its schema does not
    tell. ``runs``: how often it ran."""

    def __init__(self, library: torch.library.Library, direct: bool) -> None:
        self.runs, self.direct = 0, direct
        library.define("total(Tensor x) -> Tensor")
        library.impl("total", self._total, "CPU")
        torch.library.register_fake("tensortide_tests::total", torch.empty_like, lib=library)

    def _total(self, x: Tensor) -> Tensor:
        self.runs += 1
        made = x * 1
        if self.direct:
            backend().allreduce([made]).wait()
        else:
            dist.all_reduce(made)
        return made


def custom_op_runs(rank: int, world: int, compiled: bool, direct: bool) -> tuple[int, bool, int]:
    """How often an op ran that was called once, whether its result is right, and recomputations around it."""
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        op = Inside(library, direct)
        x = torch.full((COUNT,), float(rank + 1))
        with budget(compiled=compiled) as memory:
            y = torch.ops.tensortide_tests.total(x.exp())
            z = y.cos()
            press()
            total = torch.full((COUNT,), 1.0).exp() + torch.full((COUNT,), 2.0).exp()
            right = identical(y, total) and identical(z, total.cos())
            press()
        return op.runs, right, memory.usage.recomputations


def after_a_custom_op(rank: int, world: int, compiled: bool, direct: bool) -> list[tuple[int, bool]]:
    """Recomputations of what an op of PyTorch and one of another library make after one that communicated, and whether
    they are right."""
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        Inside(library, direct)
        library.define("quiet(Tensor x) -> Tensor")
        library.impl("quiet", lambda x: x * 2, "CPU")
        torch.library.register_fake("tensortide_tests::quiet", torch.empty_like, lib=library)
        with Budget(UNLIMITED, compiled=compiled) as memory:
            assert memory.runtime is not None
            engine, found = memory.runtime.engine, []
            x = torch.full((COUNT,), 0.5)
            torch.ops.tensortide_tests.total(x)
            after = x.cos()  # before an op of another library runs again
            for made, right in ((after, x.cos()), (torch.ops.tensortide_tests.quiet(x), x * 2)):
                before = memory.usage.recomputations
                engine.evict(memory.runtime.storage(made))
                same = identical(made + 0, right)
                found.append((memory.usage.recomputations - before, same))
        return found


def budget(room_bytes: int = ROOM, compiled: bool = True) -> Budget:
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    return Budget(there + room_bytes, clock=counting(), compiled=compiled)


def same(rank: int, world: int, compiled: bool) -> dict[str, tuple[bool, int]]:
    """Whether each of ``USES`` leaves the same behind under a budget, and what is locked at last."""
    x = torch.full((COUNT,), float(rank + 1))
    plain = [use(rank, x) for use in USES]
    found = {}
    with budget(compiled=compiled) as memory:
        assert memory.runtime is not None
        for use, expected in zip(USES, plain, strict=True):
            made = use(rank, x)
            dist.barrier()
            press()
            right = all(map(identical, made, expected))
            del made
            found[use.__name__] = right, len(memory.runtime.engine.in_use)
    assert memory.usage.recomputations > 0
    return found
