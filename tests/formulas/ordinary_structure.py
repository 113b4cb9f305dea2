"""Steps whose loops, layers and pieces follow hyperparameters; cases as in ``ordinary.py``."""

# the call of a module returns whatever its forward does
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.formulas.ordinary import Step, case, fit, training
from tests.formulas.ordinary_images import CASES

__all__ = ["CASES"]

# -- layers ---------------------------------------------------------------------------------------------


class Gated(nn.Module):
    """A block of a Llama: grouped queries, norms of root mean squares, a gated feed-forward."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, wide: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv_heads * self.size, bias=False) for _ in range(2))
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, wide, bias=False) for _ in range(2))
        self.down = nn.Linear(wide, hidden, bias=False)
        self.norms = nn.ModuleList([nn.RMSNorm(hidden), nn.RMSNorm(hidden)])

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) -> the same."""
        y, (batch, seq, _) = self.norms[0](x), x.shape
        q = self.q(y).view(batch, seq, self.heads, self.size).transpose(1, 2)
        k = self.k(y).view(batch, seq, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(y).view(batch, seq, self.kv_heads, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, seq, -1))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def _grouped(s: dict[str, int]) -> None:
    s["heads"] = s["kv_heads"] * max(1, min(s["heads"], 64) // s["kv_heads"])
    s["hidden"] = s["heads"] * max(1, round(s["hidden"] / s["heads"]))


@case(mend=_grouped, layers=16, heads=64, kv_heads=16, every=16)
def checkpointed_llama(
    batch: int = 4,
    seq: int = 256,
    hidden: int = 512,
    layers: int = 8,
    heads: int = 8,
    kv_heads: int = 4,
    vocab: int = 32000,
    every: int = 2,
) -> Step:
    """A Llama that keeps only the inputs of every ``every``-th block."""
    assert hidden % heads == 0
    assert heads % kv_heads == 0
    embed, head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab, bias=False)
    blocks = nn.ModuleList(Gated(hidden, heads, kv_heads, 4 * hidden) for _ in range(layers))
    norm, ids = nn.RMSNorm(hidden), torch.randint(vocab, (batch, seq))

    def loss() -> Tensor:
        x = embed(ids)
        for index, block in enumerate(blocks):
            x = checkpoint(block, x, use_reentrant=False) if index % every == 0 else block(x)
        return F.cross_entropy(head(norm(x)).flatten(0, 1), ids.flatten())

    return training(nn.ModuleList([embed, blocks, norm, head]).parameters(), loss, adam=True)


@case(mend=_grouped, layers=16, heads=64, kv_heads=16)
def checkpointed(
    batch: int = 4, seq: int = 128, hidden: int = 256, layers: int = 6, heads: int = 8, kv_heads: int = 2
) -> Step:
    """Every block of a Llama is computed again."""
    assert hidden % heads == 0
    assert heads % kv_heads == 0
    blocks = nn.ModuleList(Gated(hidden, heads, kv_heads, 4 * hidden) for _ in range(layers))

    def loss() -> Tensor:
        x = torch.randn(batch, seq, hidden)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    return training(blocks.parameters(), loss, adam=True)


class Mixed(nn.Module):
    """A gated average over time, with a convolution: cheaper than attention."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.inner, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.Linear(hidden, hidden)
        self.mix = nn.Conv1d(hidden, hidden, 4, padding=3, groups=hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) -> the same."""
        a, b = self.inner(self.norm(x)).chunk(2, -1)
        mixed = self.mix(a.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return x + self.out(F.silu(mixed) * b.sigmoid())


class Attending(nn.Module):
    """Attention of one head."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) -> the same."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out((q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).softmax(-1) @ v)


@case(layers=24, every=24)
def hybrid(batch: int = 4, seq: int = 128, hidden: int = 64, layers: int = 8, every: int = 4) -> Step:
    """Layer ``i`` attends if ``i % every == 0``, else mixes neighbours."""
    layer = [Attending(hidden) if index % every == 0 else Mixed(hidden) for index in range(layers)]
    return fit(nn.Sequential(*layer, nn.LayerNorm(hidden)), torch.randn(batch, seq, hidden), adam=True)


@case(mend=lambda s: s.update(groups=min(s["groups"], s["layers"])), layers=24, groups=24)
def shared_groups(batch: int = 8, hidden: int = 64, layers: int = 12, groups: int = 3) -> Step:
    """Layers share their weights in groups: ``layers/groups`` neighbours have the same."""
    shared = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(groups))

    def loss() -> Tensor:
        x = torch.randn(batch, hidden)
        for index in range(layers):
            x = x + torch.tanh(shared[index * groups // layers](x))
        return x.square().mean()

    return training(shared.parameters(), loss)


@case(mend=lambda s: s.update(layers=s["groups"] * max(1, s["layers"] // s["groups"])), layers=24, groups=12)
def albert(batch: int = 4, seq: int = 64, hidden: int = 64, layers: int = 12, groups: int = 3) -> Step:
    """The same where groups are equally large, in turn."""
    assert layers % groups == 0, "layers must be divisible by groups"
    shared = nn.ModuleList(Attending(hidden) for _ in range(groups))

    def loss() -> Tensor:
        x = torch.randn(batch, seq, hidden)
        for index in range(layers):
            x = shared[index % groups](x)
        return x.square().mean()

    return training(shared.parameters(), loss, adam=True)


@case(layers=30)
def every_third(batch: int = 8, seq: int = 64, hidden: int = 64, layers: int = 6) -> Step:
    """Every third layer attends, with a wider feed-forward."""
    made: list[nn.Module] = []
    for index in range(layers):
        made.append(nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU()))
        if (index + 1) % 3 == 0:
            made.append(Attending(hidden))
    return fit(nn.Sequential(*made), torch.randn(batch, seq, hidden), adam=True)


@case(layers=12, every=12)
def shared_reader(
    batch: int = 2, inputs: int = 50, latents: int = 16, hidden: int = 32, layers: int = 4, every: int = 2
) -> Step:
    """Latents read the inputs before every ``every``-th layer, always with the same weights."""
    query, key, value = (nn.Linear(hidden, hidden, bias=False) for _ in range(3))
    body = nn.ModuleList(nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden)) for _ in range(layers))
    start, data = nn.Parameter(torch.randn(latents, hidden)), torch.randn(batch, inputs, hidden)

    def loss() -> Tensor:
        x = start.expand(batch, latents, hidden)
        for index, layer in enumerate(body):
            if index % every == 0:
                x = x + (query(x) @ key(data).transpose(1, 2)).softmax(-1) @ value(data)
            x = x + layer(x)
        return x.square().mean()

    return training([*nn.ModuleList([query, key, value, body]).parameters(), start], loss)


@case(layers=12, image=64)
def dense_net(batch: int = 4, image: int = 16, growth: int = 12, layers: int = 4, classes: int = 10) -> Step:
    """Every layer sees what all before it made; then half as many channels."""
    convolutions = nn.ModuleList(nn.Conv2d((2 + n) * growth, growth, 3, padding=1) for n in range(layers))
    channels = 2 * growth + sum(growth for _ in convolutions)
    stem, half = nn.Conv2d(3, 2 * growth, 3, padding=1), nn.Conv2d(channels, channels // 2, 1)
    head, x, y = (
        nn.Linear(channels // 2, classes),
        torch.randn(batch, 3, image, image),
        torch.randint(classes, (batch,)),
    )

    def loss() -> Tensor:
        features = stem(x)
        for layer in convolutions:
            features = torch.cat([features, layer(features.relu())], 1)
        return F.cross_entropy(head(F.avg_pool2d(half(features), 2).mean((2, 3))), y)

    return training(nn.ModuleList([convolutions, stem, half, head]).parameters(), loss)


# -- time -----------------------------------------------------------------------------------------------


def _few_chunks(s: dict[str, int]) -> None:
    s["chunk"] = max(s["chunk"], math.ceil(s["seq"] / 12))


@case(afford=_few_chunks)
def causal_chunks(batch: int = 2, seq: int = 512, chunk: int = 128, hidden: int = 64) -> Step:
    """Causal attention in chunks of queries: each attends to its own keys and to all earlier ones."""
    project, out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def loss() -> Tensor:
        q, k, v = project(torch.randn(batch, seq, hidden)).chunk(3, -1)
        parts = []
        for start in range(0, seq, chunk):
            end = min(start + chunk, seq)
            scores = q[:, start:end] @ k[:, :end].transpose(1, 2) / math.sqrt(hidden)
            mask = torch.ones(end - start, end, dtype=torch.bool).tril(start)
            parts.append(scores.masked_fill(~mask, -1e9).softmax(-1) @ v[:, :end])
        return out(torch.cat(parts, 1)).square().mean()

    return training([*project.parameters(), *out.parameters()], loss)


@case(mend=lambda s: s.update(batch=s["accumulate"] * max(1, s["batch"] // s["accumulate"])), accumulate=32)
def accumulated(batch: int = 32, hidden: int = 128, classes: int = 10, accumulate: int = 4) -> Step:
    """Gradients of micro-batches are added up and clipped."""
    model = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(batch // accumulate, hidden), torch.randint(classes, (batch // accumulate,))

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(accumulate):
            (F.cross_entropy(model(x), y) / accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _few_micro_batches(s: dict[str, int]) -> None:
    s["micro"] = max(s["micro"], math.ceil(s["batch"] / 16))
    s["batch"] = s["micro"] * max(1, s["batch"] // s["micro"])


@case(mend=_few_micro_batches)
def micro_batches(batch: int = 64, micro: int = 16, inputs: int = 30, hidden: int = 50) -> Step:
    """Gradients of a batch that is split into micro-batches of one size."""
    assert batch % micro == 0, "batch must be divisible by micro"
    model = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(batch, inputs), torch.randn(batch, 1)

    def step() -> None:
        optimizer.zero_grad()
        for part, target in zip(x.split(micro), y.split(micro), strict=True):
            (F.mse_loss(model(part), target) * micro / batch).backward()
        optimizer.step()

    return step


@case()
def odd_sequences(batch: int = 8, seq: int = 40, hidden: int = 96, classes: int = 5) -> Step:
    """Odd sequences get one more place before neighbours are pooled."""
    body, head = nn.Conv1d(hidden, hidden, 3, padding=1), nn.Linear(hidden, classes)
    x, y = torch.randn(batch, hidden, seq), torch.randint(classes, (batch,))

    def loss() -> Tensor:
        padded = F.pad(x, (0, 1)) if seq % 2 else x
        return F.cross_entropy(head(F.max_pool1d(body(padded).relu(), 2).mean(-1)), y)

    return training([*body.parameters(), *head.parameters()], loss)


@case(layers=12, accumulate=12)
def accumulated_layers(batch: int = 8, hidden: int = 64, layers: int = 4, accumulate: int = 4) -> Step:
    """The same, and the number of layers changes too."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(batch, hidden)

    def step() -> None:
        for _ in range(accumulate):
            (model(x).square().mean() / accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


@case(steps=24, every=24)
def clipped_each_few(batch: int = 16, hidden: int = 64, steps: int = 8, every: int = 4) -> Step:
    """Some steps of training; gradients are clipped after every ``every``-th backward, and weights updated."""
    model = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(batch, hidden)

    def step() -> None:
        for index in range(steps):
            model(x).square().mean().backward()
            if (index + 1) % every == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

    return step


class Decoder(nn.Module):
    """Stacked LSTM cells that attend to what was read."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.first = nn.LSTMCell(2 * hidden, hidden)
        self.rest = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(layers - 1))
        self.query = nn.Linear(hidden, hidden, bias=False)

    def forward(self, inputs: Tensor, memory: Tensor, steps: int) -> Tensor:
        """(batch, steps, hidden), (batch, read, hidden) -> (batch, steps, hidden)."""
        cells = [self.first, *self.rest]
        zero = memory.new_zeros(inputs.shape[0], inputs.shape[2])
        states, context, outputs = [(zero, zero)] * len(cells), zero, []
        for step in range(steps):
            x = torch.cat([inputs[:, step], context], -1)
            for index, cell in enumerate(cells):
                states[index] = cell(x, states[index])
                x = states[index][0]
            scores = (memory @ self.query(x).unsqueeze(-1)).squeeze(-1)
            context = (scores.softmax(-1).unsqueeze(1) @ memory).squeeze(1)
            outputs.append(x + context)
        return torch.stack(outputs, 1)


@case(layers=6, steps=16)
def lstm_decoder(
    batch: int = 16, source: int = 20, steps: int = 10, hidden: int = 64, layers: int = 2, vocab: int = 1000
) -> Step:
    """A decoder of LSTM cells with attention, step by step and layer by layer."""
    embed, head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab)
    decoder = Decoder(hidden, layers)
    read, write = torch.randint(vocab, (batch, source)), torch.randint(vocab, (batch, steps))

    def loss() -> Tensor:
        return F.cross_entropy(head(decoder(embed(write), embed(read), steps)).flatten(0, 1), write.flatten())

    return training(nn.ModuleList([embed, head, decoder]).parameters(), loss, adam=True)


def _few_pieces(s: dict[str, int]) -> None:
    s["seq"] = min(s["seq"], 64)
    s["tbptt"] = min(s["tbptt"], s["seq"])


@case(afford=_few_pieces, seq=64, tbptt=64)
def truncated(
    batch: int = 16, seq: int = 32, tbptt: int = 8, inputs: int = 24, hidden: int = 64, classes: int = 10
) -> Step:
    """Back-propagation through time in pieces; the state goes on without its history."""
    cell, head = nn.GRUCell(inputs, hidden), nn.Linear(hidden, classes)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    data, labels = torch.randn(seq, batch, inputs), torch.randint(classes, (seq, batch))

    def step() -> None:
        h = torch.zeros(batch, hidden)
        for start in range(0, seq, tbptt):
            h, total = h.detach(), torch.zeros(())
            for t in range(start, min(start + tbptt, seq)):
                h = cell(data[t], h)
                total = total + F.cross_entropy(head(h), labels[t])
            optimizer.zero_grad()
            total.backward()
            optimizer.step()

    return step
