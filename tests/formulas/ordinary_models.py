"""Whole models as people write them, with integer hyperparameters; cases as in ``ordinary.py``."""

# the call of a module returns whatever its forward does
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.formulas.ordinary import Step, all_of, at_least, case, fit, multiple, training
from tests.formulas.ordinary_sizes import CASES

__all__ = ["CASES"]

# -- transformers ---------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Attention with fewer heads of keys and values than of queries, or as many."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size, self.causal = heads, kv_heads, hidden // heads, causal
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(hidden, 2 * kv_heads * self.size)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(batch, seq, hidden) -> the same; keys and values from ``context`` if there is one."""
        q = self.query(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        both = self.key_value(x if context is None else context).unflatten(-1, (2, self.kv_heads, self.size))
        k, v = both.permute(2, 0, 3, 1, 4).repeat_interleave(self.heads // self.kv_heads, 2).unbind()
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        if self.causal:
            scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer of a transformer, norms first."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, wide: int, causal: bool = True) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads, kv_heads, causal)
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.feed_forward = nn.Sequential(nn.Linear(hidden, wide), nn.GELU(), nn.Linear(wide, hidden))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) -> the same."""
        x = x + self.attention(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


@case(mend=all_of(multiple("hidden", "heads"), at_least("positions", "seq")), layers=16, heads=128)
def gpt2_small(
    batch: int = 8,
    seq: int = 512,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    vocab: int = 50257,
    positions: int = 1024,
) -> Step:
    """GPT-2 small; refuses what its heads or its positions do not allow."""
    assert hidden % heads == 0, "hidden must be divisible by heads"
    assert seq <= positions, "seq must not exceed positions"
    tokens, places = nn.Embedding(vocab, hidden), nn.Embedding(positions, hidden)
    body = nn.Sequential(*(Block(hidden, heads, heads, 4 * hidden) for _ in range(layers)), nn.LayerNorm(hidden))
    ids = torch.randint(vocab, (batch, seq))

    def loss() -> Tensor:
        x = body(tokens(ids) + places(torch.arange(seq)))
        return F.cross_entropy((x @ tokens.weight.T).flatten(0, 1), ids.flatten())

    return training([*tokens.parameters(), *places.parameters(), *body.parameters()], loss, adam=True)


def _grouped(s: dict[str, int]) -> None:
    s["heads"] = s["kv_heads"] * max(1, min(s["heads"], 128) // s["kv_heads"])
    s["hidden"] = s["heads"] * max(1, round(s["hidden"] / s["heads"]))


@case(mend=_grouped, layers=16, heads=128, kv_heads=32)
def llama_gqa(
    batch: int = 4,
    seq: int = 256,
    hidden: int = 512,
    layers: int = 8,
    heads: int = 8,
    kv_heads: int = 2,
    vocab: int = 32000,
) -> Step:
    """Grouped queries, a feed-forward of two thirds of four widths rounded up to a multiple of 256."""
    if hidden % heads or heads % kv_heads:
        raise ValueError(f"hidden={hidden}, heads={heads} and kv_heads={kv_heads} do not fit")
    wide = 256 * ((int(2 * 4 * hidden / 3) + 255) // 256)
    embed, head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab, bias=False)
    body = nn.Sequential(*(Block(hidden, heads, kv_heads, wide) for _ in range(layers)))
    ids = torch.randint(vocab, (batch, seq))
    model = nn.Sequential(embed, body, head)
    return training(model.parameters(), lambda: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()), adam=True)


@case(mend=_grouped, heads=128, kv_heads=32)
def gqa(batch: int = 4, seq: int = 256, hidden: int = 512, heads: int = 8, kv_heads: int = 2) -> Step:
    """One attention with grouped queries."""
    if hidden % heads or heads % kv_heads:
        raise ValueError(f"hidden={hidden}, heads={heads} and kv_heads={kv_heads} do not fit")
    return fit(Attention(hidden, heads, kv_heads), torch.randn(batch, seq, hidden))


@case(mend=all_of(multiple("hidden", "heads"), multiple("image", "patch")), layers=16, heads=96)
def small_vit(
    batch: int = 8,
    image: int = 224,
    patch: int = 16,
    hidden: int = 384,
    layers: int = 6,
    heads: int = 6,
    classes: int = 1000,
) -> Step:
    """Patches, a class token, layers, a head."""
    assert image % patch == 0, "image must be a multiple of patch"
    assert hidden % heads == 0, "hidden must be a multiple of heads"
    cut, token = nn.Conv2d(3, hidden, patch, patch), nn.Parameter(torch.zeros(1, 1, hidden))
    places = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, hidden))
    body = nn.Sequential(*(Block(hidden, heads, heads, 4 * hidden, causal=False) for _ in range(layers)))
    head, x, y = nn.Linear(hidden, classes), torch.randn(batch, 3, image, image), torch.randint(classes, (batch,))

    def loss() -> Tensor:
        patches = cut(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([token.expand(batch, -1, -1), patches], 1) + places
        return F.cross_entropy(head(body(tokens)[:, 0]), y)

    return training([*cut.parameters(), token, places, *body.parameters(), *head.parameters()], loss)


@case(mend=multiple("hidden", "heads"), heads=96, image=1024)
def swin(batch: int = 4, image: int = 56, window: int = 7, hidden: int = 96, heads: int = 3) -> Step:
    """Attention in windows; images are padded to whole windows."""
    assert hidden % heads == 0
    model, whole = Attention(hidden, heads, heads, causal=False), math.ceil(image / window) * window

    def loss() -> Tensor:
        x = F.pad(torch.randn(batch, image, image, hidden), (0, 0, 0, whole - image, 0, whole - image))
        parts = x.unflatten(2, (-1, window)).unflatten(1, (-1, window)).transpose(2, 3)
        return model(parts.flatten(0, 2).flatten(1, 2)).square().mean()

    return training(model.parameters(), loss)


@case(mend=multiple("hidden", "heads"), heads=64, layers=12)
def seq2seq(
    batch: int = 8,
    source: int = 60,
    target: int = 50,
    hidden: int = 128,
    heads: int = 4,
    layers: int = 2,
    vocab: int = 8000,
) -> Step:
    """Encoder and decoder, both of ``layers`` layers."""
    assert hidden % heads == 0
    embed = nn.Embedding(vocab, hidden)
    encoder = nn.Sequential(*(Block(hidden, heads, heads, 4 * hidden, causal=False) for _ in range(layers)))
    decoder = nn.ModuleList(Block(hidden, heads, heads, 4 * hidden) for _ in range(layers))
    cross = nn.ModuleList(Attention(hidden, heads, heads, causal=False) for _ in range(layers))
    read, write = torch.randint(vocab, (batch, source)), torch.randint(vocab, (batch, target))

    def loss() -> Tensor:
        memory, x = encoder(embed(read)), embed(write)
        for block, other in zip(decoder, cross, strict=True):
            x = block(x) + other(x, memory)
        return F.cross_entropy((x @ embed.weight.T).flatten(0, 1), write.flatten())

    every = nn.ModuleList([embed, encoder, decoder, cross])
    return training(every.parameters(), loss, adam=True)


@case(layers=24, every=24)
def every_other(batch: int = 16, hidden: int = 64, layers: int = 6, every: int = 2) -> Step:
    """A wide layer after ``every`` layers."""
    made: list[nn.Module] = []
    for index in range(layers):
        made += [nn.Linear(hidden, hidden), nn.ReLU()]
        if index % every == 0:
            made += [nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)]
    return fit(nn.Sequential(*made), torch.randn(batch, hidden))


@case(depth=12)
def mixer(batch: int = 8, tokens: int = 49, hidden: int = 64, depth: int = 4) -> Step:
    """Layers that mix tokens, then channels."""

    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
            self.channels = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
            return x + self.channels(x)

    return fit(nn.Sequential(*(Mixing() for _ in range(depth))), torch.randn(batch, tokens, hidden))


@case(layers=12)
def latents(batch: int = 4, inputs: int = 1024, latents: int = 32, hidden: int = 64, layers: int = 2) -> Step:
    """A few latents read many inputs in every layer."""
    made = nn.ModuleList(Attention(hidden, 1, 1, causal=False) for _ in range(layers))
    start = nn.Parameter(torch.zeros(1, latents, hidden))

    def loss() -> Tensor:
        data, x = torch.randn(batch, inputs, hidden), start.expand(batch, -1, -1)
        for layer in made:
            x = x + layer(x, data)
        return x.mean(1).square().mean()

    return training([*made.parameters(), start], loss)


# -- recurrences ----------------------------------------------------------------------------------------


@case(layers=8, steps=24)
def layers_and_steps(batch: int = 16, hidden: int = 64, layers: int = 3, steps: int = 8) -> Step:
    """Stacked cells, step by step: two hyperparameters change the number of ops."""
    cells = nn.ModuleList(nn.GRUCell(hidden, hidden) for _ in range(layers))
    data = torch.randn(steps, batch, hidden)

    def loss() -> Tensor:
        states = [torch.zeros(batch, hidden) for _ in range(layers)]
        for x in data:
            for index, cell in enumerate(cells):
                states[index] = cell(states[index - 1] if index else x, states[index])
        return torch.stack(states).square().mean()

    return training(cells.parameters(), loss)


@case(layers=6, steps=16)
def tanh_rnn(batch: int = 8, hidden: int = 32, layers: int = 2, steps: int = 10, vocab: int = 100) -> Step:
    """Layer after layer over all steps, a loss of every step."""
    embed, head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab)
    inner = nn.ModuleList(nn.Linear(2 * hidden, hidden) for _ in range(layers))
    ids = torch.randint(vocab, (batch, steps))

    def loss() -> Tensor:
        xs = list(embed(ids).unbind(1))
        for layer in inner:
            h = torch.zeros(batch, hidden)
            for index, x in enumerate(xs):
                xs[index] = h = torch.tanh(layer(torch.cat([x, h], -1)))
        return F.cross_entropy(head(torch.stack(xs, 1)).flatten(0, 1), ids.flatten())

    return training([*embed.parameters(), *head.parameters(), *inner.parameters()], loss)


@case(seq=40)
def unrolled(batch: int = 20, seq: int = 12, hidden: int = 128, vocab: int = 1000) -> Step:
    """An LSTM cell by hand, unrolled."""
    embed, cell, head = nn.Embedding(vocab, hidden), nn.Linear(2 * hidden, 4 * hidden), nn.Linear(hidden, vocab)
    ids = torch.randint(vocab, (batch, seq))

    def loss() -> Tensor:
        h = c = torch.zeros(batch, hidden)
        total = torch.zeros(())
        for step in range(seq - 1):
            i, f, g, o = cell(torch.cat([embed(ids[:, step]), h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            total = total + F.cross_entropy(head(h), ids[:, step + 1])
        return total / seq

    return training([*embed.parameters(), *cell.parameters(), *head.parameters()], loss)
