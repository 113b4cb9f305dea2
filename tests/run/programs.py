"""Random programs: what PyTorch can do to memory, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.dlpack import from_dlpack

SIDE = 6


class Program:
    """A few dozen steps on a set of square matrices, the same ones for the same seed; ``step`` runs them."""

    def __init__(self, seed: int, length: int = 40) -> None:
        self.seed, self.length = seed, length
        self.given = [torch.randn(SIDE, SIDE, requires_grad=i < 2) for i in range(4)]
        self.mean, self.variance = torch.zeros(SIDE), torch.ones(SIDE)

    def step(self) -> torch.Tensor:
        dice = random.Random(self.seed)
        held: list[torch.Tensor] = list(self.given)
        for _ in range(self.length):
            move = dice.choice(MOVES)
            with torch.set_grad_enabled(dice.random() < 0.8):
                made = move(self, dice, held)
            held += [t for t in made if t.shape == (SIDE, SIDE)]
            while len(held) > 9:
                held.pop(dice.randrange(4, len(held)))
        loss = sum((t.clamp(-3, 3).mean() for t in held), start=torch.zeros(()))
        if loss.requires_grad:
            loss.backward(retain_graph=False)
        with torch.no_grad():
            for leaf in self.given[:2]:
                if leaf.grad is not None:
                    leaf.sub_(0.1 * leaf.grad.nan_to_num().clamp(-1, 1))
                if dice.random() < 0.7:
                    leaf.grad = None
        return torch.stack([t.detach() for t in held]).clone()


Move = Callable[[Program, random.Random, list[torch.Tensor]], list[torch.Tensor]]


def _smooth(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    function: Any = dice.choice([torch.tanh, torch.sigmoid, torch.relu, torch.sin, torch.abs])
    return [function(dice.choice(held))]


def _two(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    one, other = dice.choice(held), dice.choice(held)
    function: Any = dice.choice([torch.add, torch.mul, torch.sub, torch.maximum])
    return [function(one, other).clamp(-9, 9)]


def _product(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    return [(dice.choice(held) @ dice.choice(held).t()).tanh()]


def _view(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held)
    return [dice.choice([x.t, x.detach, x.contiguous, lambda: x[:], lambda: x.view_as(x), lambda: x.flip(0)])()]


def _writable(dice: random.Random, held: list[torch.Tensor]) -> torch.Tensor:
    """A fresh tensor or one that the program holds already, that may be written without autograd's objection."""
    plain = [t for t in held if not t.requires_grad and t.is_contiguous()]
    return dice.choice(plain) if plain and dice.random() < 0.7 else dice.choice(held).detach().clone()


def _in_place(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x, other = _writable(dice, held), dice.choice(held).detach().clone()
    with torch.no_grad():
        dice.choice(
            [
                lambda: x.mul_(0.5),
                lambda: x.add_(other).clamp_(-5, 5),
                lambda: x[dice.randrange(SIDE)].fill_(0.25),
                lambda: x[:, 1:3].copy_(other[:, 2:4]),
                lambda: x.t().lerp_(other, 0.25),
                x[3:5, 1].zero_,
                lambda: x.bernoulli_(0.5),
                x.normal_,
                lambda: torch.add(other, 1.0, out=x),
                lambda: x.index_fill_(0, torch.tensor([0, 2]), 1.5),
                lambda: torch._foreach_mul_([x, other], 0.5),
            ]
        )()
    return [x]


def _parts(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held)
    if dice.random() < 0.5:
        spread, mean = torch.std_mean(x, 0)
        with torch.no_grad():
            mean.detach().mul_(0.5)
        return [x.detach() - mean.detach() + spread.detach()]
    top, where = x.sort(dim=0)
    return [top, where.to(torch.float32)]


def _split(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    one, other = torch.stack([dice.choice(held), dice.choice(held)]).unbind(0)
    return [torch.cat([one[:2], other[2:]]), *torch.cat([one, other]).chunk(2)]


def _dropout(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    return [F.dropout(dice.choice(held), 0.4), torch.rand(SIDE, SIDE)]


def _norm(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x, training = dice.choice(held), dice.random() < 0.7
    if dice.random() < 0.5:
        return [F.batch_norm(x, program.mean, program.variance, training=training)]
    mean, variance = x.detach().mean(0) * 0, x.detach().mean(0) * 0 + 1
    return [F.batch_norm(x, mean, variance, training=training), mean.expand(SIDE, SIDE), variance.diag()]


def _grow(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held)
    rows = x[x[:, 0] > 0]
    big = torch.cat([rows, x]).exp().clamp(max=4).log1p()
    return [big[:SIDE], big[-SIDE:]]


def _branch(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held)
    return [x * 0.5 if float(x.detach().sum()) > 0 else x.neg()]


def _slope(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    with torch.enable_grad():
        x = dice.choice(held).detach().requires_grad_()
        (slope,) = torch.autograd.grad((x.tanh() @ x.cos()).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), x)
    return [slope.detach(), second]


def _look(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held).detach()
    return dice.choice(
        [
            lambda: [torch.from_numpy(x.numpy().copy())],
            lambda: [torch.tensor(x.tolist())],
            lambda: [torch.full((SIDE, SIDE), float(len(repr(x)) % 7))],
            lambda: [from_dlpack(x)],
        ]
    )()


def _swap(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x, other = dice.choice(held).detach().clone(), dice.choice(held).detach()
    if dice.random() < 0.5:
        x.data = other.clone()
    else:
        x.set_(other.clone())  # type: ignore[call-overload]
        x.resize_(2 * SIDE, SIDE).resize_(SIDE, SIDE)
    return [x]


def _window(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held)
    return dice.choice(
        [
            lambda: [x[:1].expand(SIDE, SIDE)],
            lambda: [x.contiguous().as_strided((SIDE, SIDE), (1, SIDE))],
            lambda: [torch.cat([x, x[:1]]).unfold(0, 2, 1).sum(-1)],
            lambda: [x.diagonal().diag_embed(), x.triu(1)],
            lambda: [F.pad(x, (1, -1, 0, 0)), x.roll(1, 0), x.unsqueeze(0).movedim(0, 2).squeeze()],
        ]
    )()


def _placed(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x, other = _writable(dice, held), dice.choice(held)
    where = torch.randint(0, SIDE, (SIDE,))
    with torch.no_grad():
        dice.choice(
            [
                lambda: x.index_put_((where, where.flip(0)), torch.ones(SIDE), accumulate=True),
                lambda: x.scatter_(1, where.expand(SIDE, SIDE), other.detach().clone()),
                lambda: x.index_copy_(0, torch.tensor([1, 3]), other.detach()[:2].clone()),
                lambda: x.masked_fill_(other.detach() > 0.5, -0.5),
                lambda: x.as_strided((SIDE,), (SIDE + 1,)).add_(1),
                lambda: torch.sum(other.detach(), 0, out=x[0]),
                lambda: torch._foreach_lerp_([x], [other.detach().clone()], 0.5),
            ]
        )()
    return [x, other.index_select(0, where)]


def _kinds(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x = dice.choice(held)
    if dice.random() < 0.5:
        z = torch.complex(x, dice.choice(held))
        return [(z.conj() * z).real.clamp(-9, 9), torch.view_as_real(z.t())[..., 1], z.imag.neg().t()]
    kind = dice.choice([torch.bfloat16, torch.float16, torch.float64])
    return [(x.to(kind) * 2).to(torch.float32), (x > 0).to(torch.int8).float()]


class _Half(torch.autograd.Function):
    """Half of a tensor, written over a copy of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clone().mul_(0.5)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 0.5 + ctx.saved_tensors[0].sign() * 0.01


def _graph(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x, other = dice.choice(held), dice.choice(held)
    if dice.random() < 0.3:
        return [_Half.apply(x)]
    if dice.random() < 0.5:
        return [checkpoint(lambda a, b: F.dropout(a.sin() * b, 0.3), x, other, use_reentrant=False)]
    y = x * other
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient.clamp(-1, 1) + gradient.mean())
    return [y.clamp(-3, 3)]


def _transformed(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    x, other = dice.choice(held).detach(), dice.choice(held).detach()
    slopes = torch.func.vmap(torch.func.grad(lambda a, b: (a * b).sin().sum()))(x, other)
    return [slopes, torch.func.vmap(torch.outer)(x, other).sum(0)]


def _mistake(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
    """An op that fails halfway through."""
    x = dice.choice(held)
    try:
        torch.cat([x.sin(), x.cos()]) @ x[:2]
    except RuntimeError:
        return [x.square().clamp(max=3)]
    raise AssertionError


MOVES: list[Any] = [
    *(_smooth, _smooth, _smooth, _two, _two, _two, _product, _view, _view, _in_place, _in_place, _parts),
    *(_split, _dropout, _norm, _grow, _branch, _slope, _look, _swap),
    *(_window, _placed, _kinds, _graph, _transformed, _mistake),
]
