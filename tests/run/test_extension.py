"""Random programs that mix a C++ extension, ctypes, packed sequences, complex numbers, dropout, views and writes."""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import cpp_extension

from tensortide.errors import BudgetInfeasible
from tensortide.run.sizes import sizes_on
from tests.marks import some_slow
from tests.run.native import floats, put
from tests.run.same import UNLIMITED, run

SIDE = 16
SOURCE = """
#include <torch/extension.h>
at::Tensor doubled(const at::Tensor& x) {
  auto given = x.contiguous();
  auto made = at::empty_like(given);
  for (int64_t i = 0; i < given.numel(); i++) made.data_ptr<float>()[i] = 2 * given.data_ptr<float>()[i];
  return made;
}
at::Tensor added(const at::Tensor& x) {
  auto given = x.contiguous();
  auto made = at::zeros_like(given);
  for (int64_t i = 0; i < given.numel(); i++) made.data_ptr<float>()[i] += given.data_ptr<float>()[i] + 1;
  return made;
}
at::Tensor halve(at::Tensor x) {
  for (int64_t i = 0; i < x.numel(); i++) x.data_ptr<float>()[i] *= 0.5;
  return x.clone();
}
TORCH_LIBRARY(tensortide_extension, m) {
  m.def("halve", &halve);
  m.def("doubled", &doubled);
}
TORCH_LIBRARY_FRAGMENT(tensortide_extension, m) { m.def("halved(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(tensortide_extension, CPU, m) { m.impl("halved", &halve); }
"""


class Native(torch.autograd.Function):
    """A function of an extension, there and back."""

    function: Callable[[Tensor], Tensor]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return Native.function(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return Native.function(gradients[0]) * 0.5


def _python(x: Tensor) -> Tensor:
    given = x.contiguous()
    made = torch.empty_like(given)
    put(made, [2 * number for number in floats(given)])
    return made


def _by_address(x: Tensor) -> Tensor:
    made = x.detach().clone()
    before = made.sin()
    ctypes.memset(made.data_ptr(), 0, SIDE * 4)
    return x + made + before


def _packed(layer: nn.GRU, x: Tensor) -> Tensor:
    packed = pack_padded_sequence(x.view(4, 4, SIDE), torch.tensor([4, 3, 3, 1]), batch_first=True)
    made: Tensor = pad_packed_sequence(layer(packed)[0], batch_first=True)[0]
    return made.reshape(SIDE, SIDE)


def _written(x: Tensor) -> Tensor:
    y = x.clone()
    y[::2].mul_(0.5)
    y.t()[1:3].add_(1)
    return y.relu_()


def _shared(x: Tensor) -> Tensor:
    made = x.detach().clone()
    before = made.cos()
    made.numpy()[2:4] = 0.25
    return x * made + before


class Mixed:
    """A few dozen of these on a square matrix; the same ones for the same seed."""

    def __init__(self, seed: int, more: list[Callable[[Tensor], Tensor]]) -> None:
        self.seed, self.given, self.layer = seed, torch.randn(SIDE, SIDE, requires_grad=True), nn.GRU(SIDE, SIDE)
        self.layer.batch_first = True
        self.moves: list[Callable[[Tensor], Tensor]] = [
            *more,
            *(_by_address, _written, _shared, lambda x: _packed(self.layer, x), lambda x: F.dropout(x, 0.3)),
            *(torch.sin, lambda x: (x @ x.t()).tanh(), lambda x: x + torch.rand_like(x), lambda x: x.flip(0).t()),
            *(lambda x: (x * 1j).exp().real, lambda x: torch.fft.fft(x).abs().log1p(), lambda x: (x + 2j).angle()),
        ]

    def __call__(self) -> Tensor:
        dice, held = random.Random(self.seed), [self.given]
        for _ in range(24):
            x = dice.choice(held[-3:])
            made = dice.choice(self.moves)(x.contiguous())
            held = [*held, made.clamp(-3, 3)][-6:]
        self.given.grad = None
        self.layer.zero_grad()
        loss = torch.stack([value.mean() for value in held]).sum()
        loss.backward()
        return torch.stack([value.detach() for value in held])


def assert_the_same(seed: int, more: list[Callable[[Tensor], Tensor]]) -> None:
    def build() -> Mixed:
        return Mixed(seed, more)

    sizes_on.cache_clear()
    plain, free = run(build, None, warm=0), run(build, UNLIMITED, warm=0)
    assert plain.same(free)
    assert free.usage is not None
    for share in (0.9, 0.6, 0.4):
        with contextlib.suppress(BudgetInfeasible):
            limit = int((free.usage.peak_bytes - free.before_bytes) * share)
            assert plain.same(run(build, limit, ("dtr-eq", "lru")[seed % 2], warm=0))


@pytest.mark.parametrize("seed", some_slow(range(3), {0, 2}))
def test_programs_with_ctypes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Native, "function", staticmethod(_python), raising=False)
    assert_the_same(seed, [Native.apply])


@pytest.mark.slow
def test_programs_with_an_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.gettempdir(), f"tensortide-extension-{getpass.getuser()}-{torch.__version__}")
    folder.mkdir(exist_ok=True)
    built: Any = cpp_extension.load_inline(  # anew only where the source has changed
        "tensortide_extension_test",
        SOURCE,
        functions=["doubled", "added"],
        build_directory=str(folder),
        extra_cflags=["-O0", "-g0"],  # half the time of a compiler that optimizes
    )
    ops = torch.ops.tensortide_extension

    def halved(op: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: x + op(x.detach().clone()) + op(x.detach().clone().mul_(2))

    more = [Native.apply, halved(ops.halve), halved(ops.halved), lambda x: x + ops.doubled(x.detach())]
    for seed in range(6):
        function = (built.doubled, built.added)[seed % 2]
        monkeypatch.setattr(Native, "function", staticmethod(function), raising=False)
        assert_the_same(seed, more)
