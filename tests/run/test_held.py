"""Values that C++ keeps by address while other ops run, and numbers that autograd makes tensors of."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tensortide.run.budget import Budget
from tests.marks import some_slow
from tests.run.same import UNLIMITED, identical, squeezed

WIDTH = 16


class Packed(nn.Module):
    """A recurrent layer over sequences of different lengths."""

    def __init__(self, kind: Callable[..., nn.RNNBase], layers: int) -> None:
        super().__init__()
        self.inside = kind(WIDTH, WIDTH, layers, batch_first=True, dropout=0.2 if layers > 1 else 0.0)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        made: Tensor = pad_packed_sequence(self.inside(packed)[0], batch_first=True)[0]
        return made


@pytest.mark.parametrize("kind", some_slow([nn.LSTM, nn.GRU, nn.RNN], [nn.GRU, nn.LSTM]))
def test_packed_sequences(kind: Callable[..., nn.RNNBase]) -> None:
    def build() -> Callable[[], Any]:
        layer = Packed(kind, 2)

        def step() -> Tensor:
            layer.zero_grad()
            loss = layer(torch.randn(16, 8, WIDTH), torch.randint(1, 9, (16,))).square().mean()
            loss.backward()
            return torch.as_tensor(loss.detach())

        return step

    squeezed(build, "dtr-eq", (0.6, 0.7, 0.8, 0.9), steps=1, recomputes=True)


def test_small_integers_in_a_row_stay_resident() -> None:
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        lengths, large = torch.arange(64).flip(0), torch.arange(1 << 15).flip(0)
        square = torch.arange(64).view(8, 8).t() * 2
        kept = [runtime.engine.fixed[runtime.storage(tensor)] for tensor in (lengths, large, square)]
    assert kept == [1, 0, 0]


COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "times a number": lambda x: (x * 1j).abs(),
    "number first": lambda x: ((2 - 1j) * x).real,
    "by a number": lambda x: (x.to(torch.complex64) / (1 + 2j)).angle(),
    "power": lambda x: ((x.abs() + 1) ** 1j).imag,
    "added": lambda x: (x + 1j).sgn().real + (1j - x).sqrt().imag,
    "tensor of no dimension": lambda x: (x * torch.tensor(1 - 1j)).conj().imag,
    "views of bits": lambda x: torch.complex(x, x.sin()).conj().imag.neg(),
    "linear": lambda x: (torch.complex(x, x) @ torch.complex(x, -x).mH).abs(),
    "spectrum": lambda x: torch.fft.ifft2(torch.fft.fft2(x) * torch.exp(1j * x)).real,
    "parts": lambda x: torch.view_as_real(torch.polar(x.abs(), x) * 0.5j)[..., 1],
    "solved": lambda x: torch.linalg.solve(torch.complex(x, x) + 40j * torch.eye(32), x.to(torch.complex64)).real,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name: str) -> None:
    def gradient() -> list[Tensor]:
        x = torch.linspace(-1, 1, 1024).view(32, 32).requires_grad_()
        y: Tensor = x
        for _ in range(8):
            y = COMPLEX[name](y).sin()
        y.sum().backward()
        assert x.grad is not None
        return [y.detach().clone(), x.grad.clone()]

    expected = gradient()
    limit, recomputations = UNLIMITED, 0
    for _ in range(2):
        gc.collect()
        with Budget(limit, workspace=False) as memory:
            before = memory.resident_bytes
            found = gradient()
        assert all(map(identical, found, expected))
        del found
        limit = int(before + (memory.usage.peak_bytes - before) * 0.6)
        recomputations = memory.usage.recomputations
    assert recomputations > 0
