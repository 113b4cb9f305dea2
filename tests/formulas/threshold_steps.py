"""Steps that are others beyond a threshold of their sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Step = Callable[[], Tensor]


def summed(model: nn.Module, x: Tensor) -> Step:
    def step() -> Tensor:
        loss: Tensor = model(x).sum()
        loss.backward()
        return loss

    return step


def forward(model: nn.Module, x: Tensor) -> Step:
    """A step without gradients: half the ops, for thresholds that do not depend on them."""
    return lambda: model(x)


def capped(hidden: int = 768, batch: int = 4) -> Step:
    model = nn.Sequential(nn.Embedding(min(4096, 4 * hidden), hidden), nn.Linear(hidden, 8))
    return forward(model, torch.zeros(batch, 8, dtype=torch.long))


def late_norm(hidden: int = 768, batch: int = 4) -> Step:
    return forward(
        nn.Sequential(nn.Linear(hidden, 16), *[nn.LayerNorm(16)] * (hidden > 1024)), torch.zeros(batch, hidden)
    )


def narrow(width: int = 100, batch: int = 4) -> Step:
    return forward(nn.Sequential(nn.Linear(width, 8), *[nn.Tanh()] * (width > 64)), torch.zeros(batch, width))


def dilated(batch: int = 2, samples: int = 500, channels: int = 8) -> Step:
    """Causal convolutions with gates; the loss reads all but the last sample."""
    first, last = nn.Conv1d(1, channels, 1), nn.Conv1d(channels, 1, 1)
    body = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=2**index) for index in range(2))
    x = torch.zeros(batch, 1, samples)

    def step() -> Tensor:
        h, skip = first(x), torch.zeros(())
        for index, layer in enumerate(body):
            a, b = layer(nn.functional.pad(h, (2**index, 0))).chunk(2, 1)
            h, skip = h + a.tanh() * b.sigmoid(), skip + a.tanh() * b.sigmoid()
        loss: Tensor = (last(skip.relu())[..., :-1] - x[..., 1:]).abs().mean()
        loss.backward()
        return loss

    return step


def by_shape(hidden: int = 64, batch: int = 4) -> Step:
    project, norm, x = nn.Linear(hidden, hidden), nn.LayerNorm(hidden), torch.zeros(batch, hidden)

    def step() -> Tensor:
        y = project(x)
        out: Tensor = norm(y) if y.shape[1] > 777 else y
        return out

    return step


def by_product(batch: int = 8, seq: int = 16, hidden: int = 4) -> Step:
    project, x = nn.Linear(hidden, hidden), torch.zeros(batch, seq, hidden)

    def step() -> Tensor:
        y = project(x)
        out: Tensor = y.tanh() if y.numel() > 10_000 else y
        return out

    return step


def harmless(hidden: int = 64, batch: int = 4) -> Step:
    if hidden > 500:
        torch.manual_seed(0)
    return summed(nn.Linear(hidden, 8), torch.zeros(batch, hidden))


def by_sum(batch: int = 2, src: int = 50, tgt: int = 40, hidden: int = 16) -> Step:
    project, x, y = nn.Linear(hidden, hidden), torch.zeros(batch, src, hidden), torch.zeros(batch, tgt, hidden)

    def step() -> Tensor:
        z = torch.cat([x, y], 1)
        out: Tensor = project(z[:, :600] if z.size(1) > 600 else z)
        return out

    return step


def by_ratio(seq: int = 64, hidden: int = 32) -> Step:
    project, norm, x = nn.Linear(hidden, hidden), nn.LayerNorm(hidden), torch.zeros(seq, hidden)

    def step() -> Tensor:
        z = project(x)
        out: Tensor = norm(z) if z.shape[0] > 8 * z.shape[1] else z
        return out

    return step


def tailed(vocab: int = 300, cutoff: int = 100) -> Step:
    if vocab > cutoff:
        heads = nn.ModuleList([nn.Linear(8, cutoff + 1), nn.Linear(8, vocab - cutoff)])
    else:
        heads = nn.ModuleList([nn.Linear(8, vocab)])
    x = torch.zeros(4, 8)

    def step() -> Tensor:
        out: Tensor = torch.cat([head(x) for head in heads], 1)
        return out

    return step


def odd_pooled(seq: int = 40, batch: int = 4) -> Step:
    layer, x = nn.Conv1d(3, 5, 3, padding=1), torch.zeros(batch, 3, seq)

    def step() -> Tensor:
        padded = nn.functional.pad(x, (0, 1)) if seq % 2 else x
        out: Tensor = nn.functional.max_pool1d(layer(padded), 2)
        return out

    return step


def by_band(hidden: int = 64) -> Step:
    layer = nn.Linear(hidden, hidden)
    norm = nn.LayerNorm(hidden) if 300 <= layer.weight.shape[0] < 400 else nn.Identity()
    return forward(nn.Sequential(layer, norm), torch.zeros(2, hidden))


def by_remainder(seq: int = 50) -> Step:
    x = torch.zeros(seq, 4)
    return forward(nn.Sequential(nn.Linear(4, 4), *[nn.Tanh()] * (x.shape[0] % 97 == 0)), x)
