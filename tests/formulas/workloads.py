"""Tiny workloads, each with one thing that formulas must cope with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide import legal

Step: TypeAlias = Callable[[], Tensor]


def _training(model: nn.Module, x: Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Tensor:
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def _forward(model: nn.Module, x: Tensor) -> Step:
    """A step without gradients: half the ops, for what does not depend on them."""
    return lambda: model(x)


def mlp(batch: int = 64, seq: int = 32, hidden: int = 96, dropout: float = 0.0) -> Step:
    """Sizes only: every dimension is a product."""
    model = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * hidden, hidden))
    return _training(model, torch.randn(batch, seq, hidden))


class Layer(nn.Module):
    """(batch, hidden) -> the same."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.project, self.bend = nn.Linear(hidden, hidden), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bend(self.project(x))
        return out


def deep(batch: int = 32, hidden: int = 48, layers: int = 3) -> Step:
    """The number of ops grows with ``layers``."""
    model = nn.Sequential(*(Layer(hidden) for _ in range(layers)))
    return _forward(model, torch.randn(batch, hidden))


def trained(batch: int = 32, hidden: int = 48, layers: int = 6) -> Step:
    """The same with a backward pass and an optimizer: its peak is at one of several moments."""
    model = nn.Sequential(*(Layer(hidden) for _ in range(layers)))
    return _training(model, torch.randn(batch, hidden))


class Mixer(nn.Module):
    """(batch, seq, hidden) -> the same: attention by the book."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mixed: Tensor = (parts @ parts.transpose(-2, -1)).softmax(-1) @ parts
        return mixed.transpose(1, 2).flatten(2)


def attention(batch: int = 8, seq: int = 24, hidden: int = 64, heads: int = 4) -> Step:
    """Refuses what it cannot divide, and nothing says so beforehand."""
    if hidden % heads:
        raise ValueError(f"hidden={hidden} cannot be divided by heads={heads}")
    return _forward(Mixer(hidden, heads), torch.randn(batch, seq, hidden))


def split(hidden: int = 64, heads: int = 4) -> Step:
    """What it cannot divide it refuses; where it can, an eighth of ``heads`` need not be a whole number."""
    if hidden % heads:
        raise ValueError(f"hidden={hidden} cannot be divided by heads={heads}")
    return _forward(nn.Sequential(nn.Linear(hidden, hidden // heads), nn.Tanh()), torch.randn(8, hidden))


def parted(hidden: int = 64, heads: int = 4) -> Step:
    """Refuses what it cannot divide, as ``attention`` does, without mixing."""
    if hidden % heads:
        raise ValueError(f"hidden={hidden} cannot be divided by heads={heads}")
    return _forward(nn.Sequential(nn.Linear(hidden, hidden), nn.Unflatten(-1, (heads, -1))), torch.randn(8, hidden))


class Heads(nn.Module):
    """Attention as tutorials have it: a view fails where ``hidden`` is no multiple of ``heads``, and nothing asks."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.project = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) -> the same."""
        parts = self.project(x).view(x.shape[0], x.shape[1], self.heads, self.size).transpose(1, 2)
        mixed: Tensor = (parts @ parts.transpose(-2, -1)).softmax(-1) @ parts
        return mixed.transpose(1, 2).reshape(x.shape)


def patches(batch: int = 8, image: int = 32, patch: int = 4, hidden: int = 64, heads: int = 4, layers: int = 3) -> Step:
    """Two divisions: that of ``image`` may have a remainder, that of ``hidden`` may not."""
    model = nn.Sequential(
        nn.Conv2d(3, hidden, patch, patch), nn.Flatten(2), *(Transposed(Heads(hidden, heads)) for _ in range(layers))
    )
    places = torch.zeros((image // patch) ** 2)
    return _training(model, torch.randn(batch, 3, image, image) + places.sum())


class Transposed(nn.Module):
    """(batch, hidden, places) -> the same."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Apply the inner module to (batch, places, hidden)."""
        out: Tensor = self.inner(x.transpose(1, 2))
        return out.transpose(1, 2)


def toy(batch: int = 2, seq: int = 3, hidden: int = 4, heads: int = 2, layers: int = 1) -> Step:
    """Attention at the sizes of a first try: ``heads`` may as well be ``hidden``."""
    return _training(nn.Sequential(*(Heads(hidden, heads) for _ in range(layers))), torch.randn(batch, seq, hidden))


@legal("hidden % heads == 0", heads=(2, 4, 8))
def declared(batch: int = 8, seq: int = 24, hidden: int = 64, heads: int = 4) -> Step:
    """Says what is legal, and fails the test if anything else is tried."""
    assert hidden % heads == 0
    assert heads in (2, 4, 8)
    model = nn.Sequential(nn.Linear(hidden, hidden), nn.Unflatten(-1, (heads, -1)))
    return _forward(model, torch.randn(batch, seq, hidden))


def conv(batch: int = 16, image: int = 65, width: int = 24) -> Step:
    """Every other pixel, twice, then every third: sizes are rounded."""
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(width, 2 * width, 3, 3)
    )
    return _forward(model, torch.randn(batch, 3, image, image))


def windowed(batch: int = 8, seq: int = 48, window: int = 40, hidden: int = 32) -> Step:
    """``min(seq, window)`` rows of each sequence are kept."""
    return _forward(nn.Linear(hidden, hidden), torch.randn(batch, min(seq, window), hidden))


def odd(batch: int = 32, hidden: int = 48, layers: int = 9) -> Step:
    """Only odd numbers of layers, and from one to the next what follows no formula."""
    sizes = {3: 2, 5: 7, 7: 8, 9: 28, 11: 31}
    return _training(nn.Sequential(*(Layer(hidden) for _ in range(sizes[layers]))), torch.randn(batch, hidden))


class Halves(nn.Module):
    """(batch, hidden) -> the same, part by part; halves of one column are as good as the whole."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.columns = hidden // heads // 2
        self.project = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(x)
        return out if self.columns == 1 else out.tanh()


@legal("hidden % (2 * heads) == 0")
def halves(batch: int = 8, hidden: int = 64, heads: int = 4) -> Step:
    """Another step where ``hidden`` is just what divides it."""
    return _forward(Halves(hidden, heads), torch.randn(batch, hidden))


def erratic(batch: int = 16, hidden: int = 32, code: int = 5) -> Step:
    """As many layers as half a digit of e: no formula has their number."""
    layers = [nn.Linear(hidden, hidden) for _ in range(1 + int("27182818284590452353602874713526"[code]) // 2)]
    return _forward(nn.Sequential(*layers), torch.randn(batch, hidden))


@torch.library.custom_op("tests_formulas::blend", mutates_args=())
def blend(x: Tensor) -> Tensor:
    return x * 2


@blend.register_fake
def _blend_shape(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def thinned(batch: int = 16, hidden: int = 32, dropout: float = 0.0) -> Step:
    """A hyperparameter that is no integer decides which ops run."""
    return _forward(nn.Sequential(nn.Linear(hidden, hidden), nn.Dropout(dropout)), torch.randn(batch, hidden))


def custom(batch: int = 16, hidden: int = 32) -> Step:
    """One op is nobody's: it has no cost rule."""
    weight, x = torch.randn(hidden, hidden), torch.randn(batch, hidden)
    return lambda: blend(F.relu(x @ weight))


def coded(batch: int = 16, hidden: int = 32, code: int = 5) -> Step:
    """As many rows as a digit of e go through one op: no formula has its cost, and that of everything else."""
    linear, x = nn.Linear(hidden, hidden), torch.randn(batch, hidden)
    rows = torch.randn(3 + int("27182818284590452353602874713526"[code % 32]), 7)

    def step() -> Tensor:
        out: Tensor = linear(x).sum() + rows.sin().mean()
        return out

    return step


def skipping(batch: int = 2, image: int = 32, width: int = 8) -> Step:
    """Down by four and up again: PyTorch refuses an image that 4 does not divide, and the code does not say so."""
    first, second = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(2 * width, 1, 3, padding=1)

    def step() -> Tensor:
        x = first(torch.zeros(batch, 3, image, image))
        up = F.interpolate(F.max_pool2d(x, 4), scale_factor=4)
        out: Tensor = second(torch.cat([x, up], 1))
        return out

    return step


def chosen(batch: int = 8, width: int = 40, kept: int = 6) -> Step:
    """The largest outputs of each row, in a table padded to a power of two."""
    table = nn.Linear(width, 1 << (2 * kept - 1).bit_length())
    return _forward(table, torch.randn(batch, width).topk(kept, -1).values.repeat(1, width)[:, :width])


def cyclic(batch: int = 8, width: int = 24, cycle: int = 3) -> Step:
    """Three layers whose widths grow and start again after every ``cycle``."""
    widths = [width * 2 ** (index % cycle) for index in range(3)]
    layers = [nn.Linear(one, other) for one, other in zip([width, *widths], widths, strict=False)]
    return _forward(nn.Sequential(*layers), torch.randn(batch, width))
