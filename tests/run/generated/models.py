"""Small models with their inputs and losses, run eagerly and as generated programs."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from tensortide.run.generated.aot import Backend
from tensortide.studies.compiled import aot_backend
from tests.run.same import identical

UNLIMITED = 1 << 40
WRAPPED = 64
"""Bytes of numbers that kernels wrap as tensors while they run, which nobody plans."""

Made = tuple[nn.Module, Sequence[Tensor]]


class Block(nn.Module):
    """A transformer block with dropout, by functions."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, hidden = x.shape
        parts = self.qkv(self.first(x)).split(hidden, 2)
        q, k, v = (part.view(batch, seq, 4, hidden // 4).transpose(1, 2) for part in parts)
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden)), p)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), p)


class Gpt(nn.Module):
    """A small GPT-2 whose output layer is tied to its embedding; returns the loss."""

    def __init__(self, hidden: int = 32, layers: int = 2, vocab: int = 64, seq: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList(Block(hidden, 0.1) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x))[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Residual(nn.Module):
    """A small residual network with batch norm; returns the loss. Any CPU computes its channels in whole blocks."""

    def __init__(self, width: int = 16, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        result: Tensor = self.head(x.mean((2, 3))).logsumexp(1).mean()
        return result


class Recurrent(nn.Module):
    """An LSTM cell, step by step, with attention over its states; returns the loss."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(hidden, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = cell = torch.zeros_like(x[0])
        states = []
        for item in x:
            i, f, g, o = (self.of_input(item) + self.of_state(state)).chunk(4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
            states.append(state)
        stacked = torch.stack(states, 1)
        return (torch.softmax(stacked @ stacked.mT, -1) @ stacked).pow(2).mean()


class Deep(nn.Module):
    """Layers of equal size; returns the loss."""

    def __init__(self, layers: int = 12, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.mean()


MODELS: dict[str, Callable[[], Made]] = {
    "mlp": lambda: (Deep(layers=4), [torch.randn(256, 16)]),
    "deep": lambda: (Deep(layers=8), [torch.randn(256, 16)]),
    "resnet": lambda: (Residual(), [torch.randn(4, 3, 8, 8)]),
    "gpt2": lambda: (Gpt(), [torch.randint(0, 64, (4, 32))]),
    "lstm": lambda: (Recurrent(), [torch.randn(6, 16, 16)]),
}


def backend(budget: int = UNLIMITED, **options: Any) -> Backend:
    """A backend that plans for a moment only."""
    return aot_backend(f"{budget}B", **{"effort": 0.2, **options})


def trained(model: nn.Module, function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The loss, gradients, buffers and the generator after one step from a known state of the generator."""
    torch.manual_seed(1)
    model.zero_grad()
    loss = function(*inputs)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]
    return [*(each.clone() for each in found), torch.get_rng_state()]


def assert_same(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    """All bits of all tensors are equal."""
    assert [i for i, pair in enumerate(zip(found, wanted, strict=True)) if not identical(*pair)] == []


def fresh(model: nn.Module) -> nn.Module:
    """A copy of ``model`` without gradients."""
    made = copy.deepcopy(model)
    made.zero_grad()
    return made


def allocated_peak(step: Callable[[], Any]) -> int:
    """Most bytes that PyTorch's allocator has handed out at once in ``step``, beyond what was there."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        step()
    assert trace.profiler is not None
    now = peak = 0
    for event in trace.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
