"""Random programs of two processes: collectives of every kind, and around them what makes memory hard to follow."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.distributed.nn import functional as differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tensortide.run.budget import Budget
from tests.run.collective_uses import COUNT, Inside, budget, press
from tests.run.same import identical

MOST_HELD = 10
ROOM = 64 * 4 * COUNT
ROWS, SIDE = 16, 8
"""Sequences, and the most steps and numbers of each: as many numbers as a tensor has."""

Ending = Callable[[], list[Tensor]]


class Program:
    """Steps on ``held`` tensors. ``dice`` fall alike on every rank, and so all of them communicate in the same order;
    ``own`` dice decide what each rank does by itself, ``fate`` what is evicted."""

    def __init__(self, seed: int, rank: int, world: int, memory: Budget | None) -> None:
        self.rank, self.world, self.memory = rank, world, memory
        self.dice, self.own, self.fate = (random.Random(s) for s in (f"{seed}", f"{seed}, {rank}", f"{rank}, {seed}"))
        torch.manual_seed(seed)
        self.layer = self.dice.choice([nn.LSTM, nn.GRU])(SIDE, SIDE, batch_first=True)
        self.held = [torch.linspace(-1, 1, COUNT) * (rank + 1 + at) for at in range(3)]
        self.flights: list[tuple[Ending, list[Tensor]]] = []
        """What is under way: the wait for it, which returns new tensors, and its arguments."""

    def run(self, length: int) -> list[Tensor]:
        for _ in range(length):
            move = self.dice.choice(COMMON)
            self.hold(move(self, self.dice))
            for _ in range(self.own.randrange(4)):
                self.hold(self.own.choice(ALONE)(self, self.own), self.own)
            self.evict()
            if self.dice.random() < 0.1:
                press()
        self.land()
        return [t.clamp(-9, 9).clone() for t in (*self.held, *self.layer.parameters())]

    def hold(self, made: list[Tensor], dice: random.Random | None = None) -> None:
        """Hold ``made``; on one rank alone if it has drawn the ``dice``: then as many are held afterwards as before."""
        if dice is not None:
            for tensor in made:
                self.held[dice.randrange(len(self.held))] = tensor
            return
        self.held += made
        while len(self.held) > MOST_HELD:
            self.held.pop(self.dice.randrange(len(self.held)))

    def evict(self) -> None:
        """Evict some of what can be."""
        if self.memory is None or self.fate.random() < 0.5:
            return
        assert self.memory.runtime is not None
        self.memory.runtime.promote()
        engine = self.memory.runtime.engine
        for storage in list(engine.pool):
            if self.fate.random() < 0.6 and storage in engine.pool:
                engine.evict(storage)

    def some(self, dice: random.Random) -> Tensor:
        """A copy of one of those held, which nothing else uses; perhaps a view of more."""
        x = dice.choice(self.held) * 1.0
        return x if dice.random() < 0.7 else torch.cat([x.sin(), x, x])[COUNT : 2 * COUNT]

    def begun(self, end: Ending, arguments: list[Tensor]) -> list[Tensor]:
        """Results of what ``end`` waits for: now, or later."""
        if self.dice.random() < 0.5:
            return end()
        self.flights.append((end, arguments))
        if len(self.flights) > 3:
            self.land()
        return []

    def land(self) -> None:
        self.dice.shuffle(self.flights)
        while self.flights:
            end, _ = self.flights.pop()
            self.held += end()


Move = Callable[[Program, random.Random], list[Tensor]]


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


# -- together -----------------------------------------------------------------------------------------


def _in_place(program: Program, dice: random.Random) -> list[Tensor]:
    """What is made of the contents before and after stays right."""
    x = program.some(dice)
    before = x.cos()
    root = dice.randrange(program.world)
    work = dice.choice(
        [
            lambda: dist.all_reduce(x, async_op=True),
            lambda: dist.broadcast(x, root, async_op=True),
            lambda: dist.all_reduce(x[: COUNT // 2], dist.ReduceOp.MAX, async_op=True),
        ]
    )()

    def end() -> list[Tensor]:
        work.wait()
        return [x, before, x + 1]

    return program.begun(end, [x])


def _single(program: Program, dice: random.Random) -> list[Tensor]:
    x, y = program.some(dice), program.some(dice)
    whole, part, mixed = torch.empty(program.world * COUNT), torch.empty(COUNT), torch.empty(COUNT)
    both = torch.cat([x, y])
    work, made = dice.choice(
        [
            lambda: (dist.all_gather_into_tensor(whole, x, async_op=True), whole[COUNT:]),
            lambda: (dist.reduce_scatter_tensor(part, both, async_op=True), part),
            lambda: (dist.all_to_all_single(mixed, y, async_op=True), mixed),
        ]
    )()

    def end() -> list[Tensor]:
        work.wait()
        return [made, y.sin()]

    return program.begun(end, [x, y, both, made])


def _lists(program: Program, dice: random.Random) -> list[Tensor]:
    x, y = program.some(dice), program.some(dice)
    first, second = torch.empty(COUNT), torch.zeros(COUNT)
    if dice.random() < 0.5:
        work = dist.all_gather([first, second], x, async_op=True)
    else:
        work = dist.all_to_all([first, second], [x, y], async_op=True)

    def end() -> list[Tensor]:
        assert work is not None
        work.wait()
        return [first, second * 2]

    return program.begun(end, [x, y, first, second])


def _messages(program: Program, dice: random.Random) -> list[Tensor]:
    x, found = program.some(dice), torch.empty(COUNT)
    works = [dist.isend(x, 1 - program.rank), dist.irecv(found, 1 - program.rank)]

    def end() -> list[Tensor]:
        for work in works:
            assert work is not None
            work.wait()
        return [found, x]

    return program.begun(end, [x, found])


def _coalesced(program: Program, dice: random.Random) -> list[Tensor]:
    x, y = program.some(dice), program.some(dice)
    with _coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)

    def end() -> list[Tensor]:
        manager.wait()
        return [x, y]

    return program.begun(end, [x, y])


def _functional(program: Program, dice: random.Random) -> list[Tensor]:
    x, y = program.some(dice), program.some(dice)
    made: Any = dice.choice(
        [
            lambda: functional.all_reduce(x, "sum", _group()),
            lambda: functional.all_gather_tensor(x, 0, _group())[COUNT:],
            lambda: functional.reduce_scatter_tensor(torch.cat([x, y]), "sum", 0, _group()),
            lambda: functional.all_to_all_single(x, None, None, _group()),
            lambda: functional.broadcast(x, 1, _group()),
        ]
    )()
    return program.begun(lambda: [made * 1, x.mul_(0.5) + y], [x, y])


def _functional_in_place(program: Program, dice: random.Random) -> list[Tensor]:
    x, ops = program.some(dice), torch.ops._c10d_functional
    before = x.exp().clamp(max=4)
    written = dice.choice(
        [
            lambda: ops.all_reduce_(x, "sum", _group().group_name),
            lambda: ops.broadcast_(x, 0, _group().group_name),
        ]
    )()

    def end() -> list[Tensor]:
        ops.wait_tensor(written)
        return [x, before]

    return program.begun(end, [x])


def _custom(program: Program, dice: random.Random) -> list[Tensor]:
    """A custom op inside which ranks communicate."""
    x = program.some(dice)
    return [torch.ops.tensortide_tests.total(x).tanh(), x]


def _complex(program: Program, dice: random.Random) -> list[Tensor]:
    z = torch.complex(program.some(dice), program.some(dice)) * 1j
    kept = z.conj() * 2
    dist.all_reduce(z if dice.random() < 0.5 else torch.view_as_real(z))
    return [z.real, kept.imag.neg(), (z * kept).abs().clamp(max=5)]


def _through_gradients(program: Program, dice: random.Random) -> list[Tensor]:
    x, group = program.some(dice).requires_grad_(), _group()
    y = x.tanh()
    made: Any = dice.choice(
        [
            lambda: functional.all_gather_tensor_autograd(y, 0, group),
            lambda: functional.reduce_scatter_tensor_autograd(torch.cat([y, x.sin()]), "sum", 0, group),
            lambda: differentiable.all_reduce(y),
            lambda: torch.stack(list(differentiable.all_gather(y))),
        ]
    )()
    (made * made.cos()).sum().backward()
    assert x.grad is not None
    return [x.grad, y.detach()]


def _trained(program: Program, dice: random.Random) -> list[Tensor]:
    """Packed sequences through a recurrent layer, gradients summed over ranks as they come, an update."""
    layer, rows = program.layer, program.some(dice).view(ROWS, SIDE, SIDE)
    lengths = torch.tensor([SIDE, *(program.own.randint(1, SIDE) for _ in range(ROWS - 1))])
    packed = pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
    made, _ = pad_packed_sequence(layer(packed)[0], batch_first=True)
    made.square().mean().backward()
    works = [dist.all_reduce(p.grad, async_op=True) for p in layer.parameters()]
    with torch.no_grad():
        for work, weight in zip(works, layer.parameters(), strict=True):
            work.wait()
            weight.sub_(0.1 * weight.grad)
            weight.grad = None
    return [made.detach().reshape(COUNT)]


COMMON: tuple[Move, ...] = (
    *(_in_place, _in_place, _single, _lists, _messages, _coalesced, _functional, _functional, _functional_in_place),
    *(_custom, _complex, _through_gradients, _trained),
)


# -- on each rank by itself ----------------------------------------------------------------------------


def _smooth(program: Program, dice: random.Random) -> list[Tensor]:
    return [dice.choice([torch.sin, torch.tanh, torch.cos])(program.some(dice)) + dice.choice(program.held)]


def _written(program: Program, dice: random.Random) -> list[Tensor]:
    x = program.some(dice)
    before = x * 3
    x[: COUNT // 2].mul_(0.5)
    x.add_(1, alpha=-0.5)
    return [x, before.cos()]


def _drawn(program: Program, dice: random.Random) -> list[Tensor]:
    return [F.dropout(program.some(dice), 0.3) + torch.rand(COUNT)]


def _spectrum(program: Program, dice: random.Random) -> list[Tensor]:
    z = torch.fft.fft(program.some(dice)) * 0.05j
    return [torch.view_as_real(z)[..., 1].clamp(-2, 2), z.conj().imag.clamp(-2, 2)]


def _believed(program: Program, dice: random.Random) -> list[Tensor]:
    """A custom op that writes what its schema says."""
    x, y = program.some(dice), program.some(dice)
    before = x.sin()
    return [torch.ops.tensortide_tests.twist(x, y), x, before]


def _lying(program: Program, dice: random.Random) -> list[Tensor]:
    """An op of a library that writes an argument, which its schema does not say."""
    x, y = program.some(dice), program.some(dice)
    before = x.sin()
    torch.ops.tensortide_tests.scale(x, y)
    return [x, before]


ALONE: tuple[Move, ...] = (_smooth, _smooth, _smooth, _written, _drawn, _spectrum, _believed, _lying)


def _twist(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y, alpha=0.5).clamp_(-3, 3)
    return x.flip(0) * y


def _scale(x: Tensor, y: Tensor) -> None:
    x.numpy()[:] *= 0.5  # unseen by PyTorch


def define(library: torch.library.Library) -> None:
    """Define the custom ops."""
    Inside(library, direct=False)
    library.define("twist(Tensor(a!) x, Tensor y) -> Tensor")
    library.impl("twist", _twist, "CPU")
    torch.library.register_fake("tensortide_tests::twist", lambda x, y: torch.empty_like(x), lib=library)
    library.define("scale(Tensor x, Tensor y) -> ()")
    library.impl("scale", _scale, "CPU")


def programs(rank: int, world: int, seeds: list[int], compiled: bool, length: int) -> list[tuple[int, bool, int]]:
    """For each of ``seeds``: whether its program leaves the same behind under a budget, and recomputations."""
    found = []
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        define(library)
        for seed in seeds:
            plain = Program(seed, rank, world, None).run(length)
            with budget(ROOM, compiled) as memory:
                tight = Program(seed, rank, world, memory).run(length)
            same = len(tight) == len(plain) and all(map(identical, tight, plain))
            found.append((seed, same, memory.usage.recomputations))
    return found
