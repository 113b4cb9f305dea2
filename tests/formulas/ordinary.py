"""Workloads as people write them: functions whose integer hyperparameters have defaults, without a hint for formulas.

Each is a case for ``benchmarks/formula_exactness.py``: ``CASES`` has it with how legal settings of it are drawn, which
the formulas never see. Here: thresholds, minima, capacities, chunks, rounded and small sizes. The other files
have more, and import ``CASES`` of each other: ``ordinary_structure.py`` has all.
"""

# the call of a module returns whatever its forward does
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.expr import parse_condition, symbol

Step: TypeAlias = Callable[[], Any]
Mend: TypeAlias = Callable[[dict[str, int]], object]


def _nothing(setting: dict[str, int]) -> None:
    """Leave a drawn setting as it is."""


@dataclass(frozen=True)
class Case:
    """A workload, and settings of it that are worth a capture.

    ``mend`` makes a drawn setting legal, in place, ``afford`` one that would take long to capture a shorter one.
    ``most`` are the largest values of hyperparameters that make a capture long, ``values`` the only ones.
    """

    workload: Callable[..., Step]
    mend: Mend = _nothing
    afford: Mend = _nothing
    most: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Sequence[int]] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(
    mend: Mend = _nothing, afford: Mend = _nothing, **most: int
) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Add a workload to ``CASES``."""

    def added(workload: Callable[..., Step]) -> Callable[..., Step]:
        CASES[workload.__name__] = Case(workload, mend, afford, most)
        return workload

    return added


def builtin(workload: Callable[..., Step]) -> Case:
    """The case of a workload that may declare its legal settings: small numbers, of repeated parts perhaps, are no more
    than doubled, and multiples are made where they are declared."""
    defaults = {n: p.default for n, p in inspect.signature(workload).parameters.items() if type(p.default) is int}
    asked = [condition.divisor for text in getattr(workload, "where", ()) for condition in [parse_condition(text)]]

    def mend(setting: dict[str, int]) -> None:
        for divisor, number in [*filter(None, asked)] * 2:
            for name in number.symbols if len(number.symbols) == 1 and number == symbol(*number.symbols) else ():
                by = divisor.evaluate(setting)
                setting[name] = by * max(1, round(setting[name] / by))

    most = {name: 2 * value for name, value in defaults.items() if value <= 16}
    return Case(workload, mend, most=most, values=getattr(workload, "values", {}))


def multiple(name: str, of: str) -> Mend:
    """Make one hyperparameter a multiple of another."""
    return lambda s: s.update({name: s[of] * max(1, round(s[name] / s[of]))})


def at_least(name: str, other: str) -> Mend:
    """Make one hyperparameter no smaller than another."""
    return lambda s: s.update({name: max(s[name], s[other])})


def all_of(*mends: Mend) -> Mend:
    """Apply several in turn."""
    return lambda s: [mend(s) for mend in mends]


def training(parameters: Iterable[nn.Parameter], loss: Callable[[], Tensor], adam: bool = False) -> Step:
    """One step: loss, backward, update."""
    listed = list(parameters)
    optimizer = torch.optim.AdamW(listed, lr=1e-3) if adam else torch.optim.SGD(listed, lr=0.1)

    def step() -> Tensor:
        value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value

    return step


def fit(model: nn.Module, x: Tensor, adam: bool = False) -> Step:
    """One step that makes the outputs of ``model`` small."""
    return training(model.parameters(), lambda: model(x).square().mean(), adam)


def classify(model: nn.Module, x: Tensor, classes: int) -> Step:
    """One step of classification."""
    y = torch.randint(classes, (x.shape[0],))
    return training(model.parameters(), lambda: F.cross_entropy(model(x), y))


# -- thresholds -----------------------------------------------------------------------------------------


@case()
def late_norm(batch: int = 16, hidden: int = 768) -> Step:
    """Wide models get a layer norm: far above the default."""
    layers: list[nn.Module] = [nn.Linear(hidden, hidden), nn.GELU()]
    if hidden > 1024:
        layers.append(nn.LayerNorm(hidden))
    return fit(nn.Sequential(*layers, nn.Linear(hidden, 10)), torch.randn(batch, hidden))


@case()
def narrow(batch: int = 32, inputs: int = 50, width: int = 20) -> Step:
    """A bottleneck above 64, with a default below."""
    middle = [nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width)] if width > 64 else []
    return fit(
        nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), *middle, nn.Linear(width, 1)), torch.randn(batch, inputs)
    )


@case()
def wide(batch: int = 32, inputs: int = 50, width: int = 100) -> Step:
    """The same with a default above."""
    return narrow(batch, inputs, width)


@case()
def head_by_vocab(batch: int = 32, seq: int = 35, hidden: int = 200, vocab: int = 10000) -> Step:
    """Large vocabularies get a factored output layer."""
    embed = nn.Embedding(vocab, hidden)
    head = nn.Linear(hidden, vocab) if vocab <= 30000 else nn.Sequential(nn.Linear(hidden, 64), nn.Linear(64, vocab))
    ids = torch.randint(vocab, (batch, seq))
    loss = lambda: F.cross_entropy(head(embed(ids)).flatten(0, 1), ids.flatten())  # noqa: E731
    return training([*embed.parameters(), *head.parameters()], loss)


@case()
def local_or_full(batch: int = 4, seq: int = 128, hidden: int = 64) -> Step:
    """Attention over everything up to 512, then over blocks of 128."""
    project = nn.Linear(hidden, 3 * hidden)
    block = 128 if seq > 512 else seq
    padded = math.ceil(seq / block) * block

    def loss() -> Tensor:
        x = F.pad(project(torch.randn(batch, seq, hidden)), (0, 0, 0, padded - seq))
        q, k, v = x.unflatten(1, (padded // block, block)).chunk(3, -1)
        return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).square().mean()

    return training(project.parameters(), loss)


@case()
def two_thresholds(batch: int = 8, seq: int = 256, hidden: int = 256) -> Step:
    """A larger feed-forward from 512 on, dropout and a norm from 2048 on."""
    wide, norm = (8 if hidden >= 512 else 4) * hidden, [nn.Dropout(0.1), nn.LayerNorm(hidden)] if hidden >= 2048 else []
    model = nn.Sequential(nn.Linear(hidden, wide), nn.GELU(), nn.Linear(wide, hidden), *norm)
    return fit(model, torch.randn(batch, seq, hidden), adam=True)


# -- minima and maxima ----------------------------------------------------------------------------------


@case()
def capped_embedding(batch: int = 8, seq: int = 64, hidden: int = 768) -> Step:
    """As many buckets as four widths, 4096 at most."""
    buckets = min(4096, 4 * hidden)
    embed, head = nn.Embedding(buckets, hidden), nn.Linear(hidden, 16)
    ids = torch.randint(buckets, (batch, seq))
    return training([*embed.parameters(), *head.parameters()], lambda: head(embed(ids)).square().mean())


@case()
def window(batch: int = 8, seq: int = 512, window: int = 128, hidden: int = 64) -> Step:
    """Queries of a whole sequence, keys of its last part."""
    query, key = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden)

    def loss() -> Tensor:
        x = torch.randn(batch, seq, hidden)
        k, v = key(x[:, -min(seq, window) :]).chunk(2, -1)
        return (F.softmax(query(x) @ k.transpose(1, 2), -1) @ v).mean()

    return training([*query.parameters(), *key.parameters()], loss)


@case()
def positions(batch: int = 8, seq: int = 128, hidden: int = 64, buckets: int = 320) -> Step:
    """A bias of relative positions: as many as there are, or buckets if these are fewer."""
    rows = min(2 * seq - 1, buckets)
    table, project = nn.Embedding(rows, 4), nn.Linear(hidden, 4 * hidden)
    index = torch.randint(rows, (seq, seq))

    def loss() -> Tensor:
        x = project(torch.randn(batch, seq, hidden)).unflatten(-1, (4, hidden)).transpose(1, 2)
        return (x @ x.transpose(-1, -2) + table(index).permute(2, 0, 1)).softmax(-1).square().mean()

    return training([*table.parameters(), *project.parameters()], loss)


@case()
def adapter(batch: int = 16, hidden: int = 256, outputs: int = 128, rank: int = 8) -> Step:
    """A low-rank adapter, whose rank is no more than either side."""
    base, r = nn.Linear(hidden, outputs).requires_grad_(False), min(rank, hidden, outputs)
    down, up = nn.Linear(hidden, r, bias=False), nn.Linear(r, outputs, bias=False)
    x = torch.randn(batch, hidden)
    return training([*down.parameters(), *up.parameters()], lambda: (base(x) + up(down(x))).square().mean(), adam=True)


@case()
def widest(batch: int = 16, text: int = 300, image: int = 512) -> Step:
    """Two inputs meet in the wider of their widths, which is 128 at least."""
    width = max(text, image, 128)
    one, other, head = nn.Linear(text, width), nn.Linear(image, width), nn.Linear(width, 2)
    a, b = torch.randn(batch, text), torch.randn(batch, image)
    return training(
        [*one.parameters(), *other.parameters(), *head.parameters()], lambda: head(one(a) * other(b)).mean()
    )


@case(mend=lambda s: s.update(width=s["width"] if s["width"] <= 32 else s["width"] // 32 * 32))
def group_norm(batch: int = 8, image: int = 16, width: int = 64) -> Step:
    """32 groups, or one per channel."""
    model = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.GroupNorm(min(32, width), width), nn.SiLU())
    return fit(model, torch.randn(batch, 3, image, image))


@case()
def timestep(batch: int = 16, width: int = 65, frequencies: int = 10000) -> Step:
    """Sines and cosines of half the width each, and a zero if the width is odd."""
    half = width // 2
    model = nn.Sequential(nn.Linear(width, max(width, 64)), nn.SiLU(), nn.Linear(max(width, 64), width))
    t = torch.rand(batch, 1)

    def loss() -> Tensor:
        angles = t * torch.exp(torch.arange(half) * (-math.log(frequencies) / half))
        return model(F.pad(torch.cat([angles.sin(), angles.cos()], -1), (0, width % 2))).square().mean()

    return training(model.parameters(), loss)


# -- capacities, chunks, rounded sizes ------------------------------------------------------------------


@case(mend=lambda s: s.update(top=min(s["top"], s["experts"])), experts=256, top=64)
def capacity(batch: int = 8, seq: int = 128, hidden: int = 64, experts: int = 8, top: int = 2) -> Step:
    """Every expert takes the tokens that fit: ceil(1.25 tokens k / experts)."""
    tokens = batch * seq
    slots = math.ceil(1.25 * tokens * top / experts)
    gate = nn.Linear(hidden, experts)
    up, down = (
        nn.Parameter(torch.randn(experts, hidden, 4 * hidden)),
        nn.Parameter(torch.randn(experts, 4 * hidden, hidden)),
    )
    chosen = torch.randint(tokens, (experts, slots))

    def loss() -> Tensor:
        x = torch.randn(tokens, hidden)
        weight = gate(x).softmax(-1)
        taken = x[chosen] * weight.T.gather(1, chosen).unsqueeze(-1)
        return (F.gelu(taken @ up) @ down).square().mean()

    return training([*gate.parameters(), up, down], loss)


def _chunks(s: dict[str, int]) -> None:
    s["chunk"] = max(s["chunk"], math.ceil(s["seq"] / 24))


@case(afford=_chunks)
def chunked(batch: int = 2, seq: int = 1024, chunk: int = 256, hidden: int = 64) -> Step:
    """Attention chunk by chunk, the last one shorter."""
    project = nn.Linear(hidden, 3 * hidden)

    def loss() -> Tensor:
        q, k, v = project(torch.randn(batch, seq, hidden)).chunk(3, -1)
        parts = [q[:, at : at + chunk] for at in range(0, seq, chunk)]
        return torch.cat([(part @ k.transpose(1, 2)).softmax(-1) @ v for part in parts], 1).square().mean()

    return training(project.parameters(), loss)


@case(afford=_chunks)
def chunked_loss(batch: int = 4, seq: int = 512, chunk: int = 128, hidden: int = 64, vocab: int = 1000) -> Step:
    """The loss chunk by chunk, every chunk as long as the others: the end is padded."""
    head, count = nn.Linear(hidden, vocab), math.ceil(seq / chunk)

    def loss() -> Tensor:
        x = F.pad(torch.randn(batch, seq, hidden), (0, 0, 0, count * chunk - seq))
        y = torch.zeros(batch, count * chunk, dtype=torch.long)
        pairs = zip(x.split(chunk, 1), y.split(chunk, 1), strict=True)
        parts = [F.cross_entropy(head(a).flatten(0, 1), b.flatten(), reduction="sum") for a, b in pairs]
        return torch.stack(parts).sum() / (batch * seq)

    return training(head.parameters(), loss)


@case(mend=at_least("batch", "three"), three=1)
def third(batch: int = 32, hidden: int = 64, three: int = 3) -> Step:
    """A third of the batch without a gradient."""
    model = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    x = torch.randn(batch, hidden)

    def loss() -> Tensor:
        with torch.no_grad():
            target = model(x[: batch // 3])
        return (model(x[batch // 3 :]).mean() - target.mean()).square() * three

    return training(model.parameters(), loss)


@case()
def padded_width(batch: int = 16, width: int = 100, classes: int = 10) -> Step:
    """The width is padded to a multiple of 8."""
    whole = width + (-width) % 8
    return classify(
        nn.Sequential(nn.Linear(width, whole), nn.ReLU(), nn.Linear(whole, classes)), torch.randn(batch, width), classes
    )


@case()
def padded_vocab(batch: int = 4, seq: int = 64, hidden: int = 96, vocab: int = 50257) -> Step:
    """The vocabulary is padded to a multiple of 128; ends of tied weights."""
    embed = nn.Embedding(math.ceil(vocab / 128) * 128, hidden)
    ids = torch.randint(vocab, (batch, seq))
    loss = lambda: F.cross_entropy((embed(ids) @ embed.weight.T).flatten(0, 1), ids.flatten())  # noqa: E731
    return training(embed.parameters(), loss, adam=True)


# -- small and equal defaults ---------------------------------------------------------------------------


@case()
def tiny(batch: int = 2, inputs: int = 3, hidden: int = 4, outputs: int = 2) -> Step:
    """Four hyperparameters of at most four."""
    return fit(
        nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)), torch.randn(batch, inputs)
    )


@case()
def tiny_video(batch: int = 1, frames: int = 4, channels: int = 3, width: int = 4, classes: int = 2) -> Step:
    """Five of them, in a convolution over time."""
    model = nn.Sequential(
        nn.Conv3d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )
    return fit(model, torch.randn(batch, channels, frames, 8, 8))


@case()
def batch_of_one(batch: int = 1, seq: int = 128, hidden: int = 256) -> Step:
    """A batch of one by default."""
    model = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden))
    return fit(model, torch.randn(batch, seq, hidden))


@case()
def equal(batch: int = 8, seq: int = 8, hidden: int = 8, classes: int = 8) -> Step:
    """All defaults are equal."""
    model = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Flatten(), nn.Linear(seq * hidden, classes))
    return classify(model, torch.randn(batch, seq, hidden), classes)
