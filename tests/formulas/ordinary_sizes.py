"""Workloads whose sizes are computed: capped widths, grids, paddings, capacities; cases as in ``ordinary.py``."""

# the call of a module returns whatever its forward does
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.formulas.ordinary import Step, all_of, at_least, case, classify, fit, multiple, training
from tests.formulas.ordinary_convolutions import CASES

__all__ = ["CASES"]

# -- widths ---------------------------------------------------------------------------------------------


def _image_of_levels(s: dict[str, int]) -> None:
    s["image"] = 2 ** s.get("levels", 3) * max(1, s["image"] // 2 ** s.get("levels", 3))


def _discriminator(batch: int, image: int, width: int, cap: int, levels: int) -> Step:
    widths = [min(cap, width * 2**level) for level in range(levels)]
    layers: list[nn.Module] = []
    for inputs, outputs in zip([3, *widths], widths, strict=False):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
    layers += [nn.Conv2d(widths[-1], 1, 1), nn.AdaptiveAvgPool2d(1)]
    return fit(nn.Sequential(*layers), torch.randn(batch, 3, image, image))


@case(mend=_image_of_levels, image=512)
def capped_widths(batch: int = 16, image: int = 64, width: int = 64, cap: int = 256) -> Step:
    """Widths double three times, up to a cap that the last one meets."""
    return _discriminator(batch, image, width, cap, 3)


@case(mend=_image_of_levels, image=512, levels=6)
def capped_levels(batch: int = 16, image: int = 64, width: int = 64, cap: int = 256, levels: int = 4) -> Step:
    """The same with as many levels as are wanted."""
    return _discriminator(batch, image, width, cap, levels)


@case(mend=_image_of_levels, image=256)
def capped_unet(batch: int = 2, image: int = 64, width: int = 32, cap: int = 128) -> Step:
    """Down and up again, with widths that double up to a cap."""
    widths = [min(cap, width * 2**level) for level in range(4)]
    down = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in zip([3, *widths], widths, strict=False))
    up = nn.ModuleList(nn.Conv2d(w + v, w, 3, padding=1) for w, v in itertools.pairwise(widths))
    last = nn.Conv2d(widths[0], 3, 1)

    def loss() -> Tensor:
        x, seen = torch.randn(batch, 3, image, image), []
        for level, layer in enumerate(down):
            x = F.relu(layer(F.max_pool2d(x, 2) if level else x))
            seen.append(x)
        for layer, before in zip(reversed(up), reversed(seen[:-1]), strict=True):
            x = F.relu(layer(torch.cat([before, F.interpolate(x, scale_factor=2)], 1)))
        return last(x).square().mean()

    return training([*down.parameters(), *up.parameters(), *last.parameters()], loss)


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round to a multiple of ``divisor``, not below nine tenths of ``value``."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


@case(image=256)
def mobile(batch: int = 8, image: int = 32, width: int = 32, percent: int = 100, expand: int = 4) -> Step:
    """Depthwise separable layers of widths that are a percentage, rounded."""
    layers: list[nn.Module] = []
    inputs = 3
    for scale in (1, 2):
        outputs = make_divisible(width * scale * percent / 100)
        hidden = inputs * expand
        layers += [
            nn.Conv2d(inputs, hidden, 1, bias=False),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, 2, 1, groups=hidden, bias=False),
            nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1, bias=False),
        ]
        inputs = outputs
    return fit(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)), torch.randn(batch, 3, image, image))


@case()
def gated(batch: int = 2, seq: int = 64, hidden: int = 192, multiple: int = 32) -> Step:
    """The inner width of a gated layer: two thirds of four, up to the next multiple."""
    inner = int(2 * 4 * hidden / 3)
    inner = multiple * ((inner + multiple - 1) // multiple)
    up, gate, down = nn.Linear(hidden, inner), nn.Linear(hidden, inner), nn.Linear(inner, hidden)
    parameters = [*up.parameters(), *gate.parameters(), *down.parameters()]
    return training(parameters, lambda: down(F.silu(gate(x := torch.randn(batch, seq, hidden))) * up(x)).mean())


@case(doublings=9)
def doubled(batch: int = 8, inputs: int = 24, doublings: int = 3, classes: int = 5) -> Step:
    """A hidden layer of 16 * 2**doublings."""
    width = 16 * 2**doublings
    model = nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width // 2), nn.Linear(width // 2, classes)
    )
    return classify(model, torch.randn(batch, inputs), classes)


# -- experts --------------------------------------------------------------------------------------------


@case(mend=lambda s: s.update(top=min(s["top"], s["experts"])), experts=24, top=24)
def dense_experts(batch: int = 2, seq: int = 4, hidden: int = 4, experts: int = 3, top: int = 2) -> Step:
    """Every expert sees every token; all defaults are at most four."""
    gate = nn.Linear(hidden, experts)
    layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(experts))

    def loss() -> Tensor:
        x = torch.randn(batch * seq, hidden)
        scores, chosen = gate(x).softmax(-1).topk(top, -1)
        weights = torch.zeros(batch * seq, experts).scatter(1, chosen, scores)
        outputs = torch.stack([layer(x) for layer in layers], 1)
        return (weights.unsqueeze(-1) * outputs).sum(1).square().mean()

    return training([*gate.parameters(), *layers.parameters()], loss)


@case(mend=lambda s: s.update(top=min(s["top"], s["experts"])), experts=64, top=64)
def einsum_experts(batch: int = 2, seq: int = 3, hidden: int = 4, experts: int = 2, top: int = 1) -> Step:
    """Experts in one product each, one to four of everything."""
    gate = nn.Linear(hidden, experts)
    up, down = (
        nn.Parameter(torch.randn(experts, hidden, 2 * hidden)),
        nn.Parameter(torch.randn(experts, 2 * hidden, hidden)),
    )

    def loss() -> Tensor:
        x = torch.randn(batch, seq, hidden)
        probabilities = gate(x).softmax(-1)
        kept = probabilities * F.one_hot(probabilities.topk(top, -1).indices, experts).sum(-2)
        inner = F.relu(torch.einsum("bsh,ehf->bsef", x, up))
        return torch.einsum("bsef,efh,bse->bsh", inner, down, kept).square().mean()

    return training([*gate.parameters(), up, down], loss)


@case(mend=lambda s: s.update(top=min(s["top"], s["experts"])), experts=128, top=16)
def slots(batch: int = 4, seq: int = 64, hidden: int = 32, experts: int = 4, top: int = 2, factor: int = 5) -> Step:
    """Capacity in quarters: ceil(tokens * top * factor / (4 * experts)), four at least."""
    tokens = batch * seq
    slots = max(4, math.ceil(tokens * top * factor / (4 * experts)))
    gate, weight = nn.Linear(hidden, experts), nn.Parameter(torch.randn(experts, hidden, hidden))

    def loss() -> Tensor:
        x = torch.randn(tokens, hidden)
        dispatch = F.pad(gate(x).softmax(-1), (0, 0, 0, max(0, slots - tokens)))
        taken = dispatch.topk(min(slots, tokens), 0).indices
        return (x[taken.T] @ weight).square().mean()

    return training([*gate.parameters(), weight], loss)


# -- grids, paddings and windows ------------------------------------------------------------------------


@case(mend=lambda s: s.update(tokens=max(1, math.isqrt(s["tokens"])) ** 2))
def grid(batch: int = 4, tokens: int = 64, hidden: int = 32) -> Step:
    """Tokens as a square image."""
    side = math.isqrt(tokens)
    assert side * side == tokens
    project, mix = nn.Linear(hidden, hidden), nn.Conv2d(hidden, hidden, 3, padding=1)

    def loss() -> Tensor:
        x = project(torch.randn(batch, tokens, hidden))
        image = x.transpose(1, 2).reshape(batch, hidden, side, side)
        return mix(image).flatten(2).transpose(1, 2).square().mean()

    return training([*project.parameters(), *mix.parameters()], loss)


@case()
def padded_to_multiple(batch: int = 4, seq: int = 100, hidden: int = 32, multiple: int = 16) -> Step:
    """A sequence is padded to a multiple of a number, as its shape says, and cut off again."""
    layer = nn.Linear(hidden, hidden)

    def loss() -> Tensor:
        x = torch.randn(batch, seq, hidden)
        length = x.shape[1]
        pad = (-length) % multiple
        y = layer(F.pad(x, (0, 0, 0, pad)).reshape(batch, -1, multiple, hidden))
        return y.flatten(1, 2)[:, :length].square().mean()

    return training(layer.parameters(), loss)


@case(image=256, window=64)
def windows(batch: int = 2, image: int = 30, window: int = 7, hidden: int = 16) -> Step:
    """Attention in windows; the image is padded to a multiple of them."""
    project = nn.Linear(hidden, 3 * hidden)

    def loss() -> Tensor:
        x = torch.randn(batch, image, image, hidden)
        _, height, width, _ = x.shape
        below, right = (window - height % window) % window, (window - width % window) % window
        x = F.pad(x, (0, 0, 0, right, 0, below))
        rows, columns = x.shape[1] // window, x.shape[2] // window
        x = x.view(batch, rows, window, columns, window, hidden).transpose(2, 3).reshape(-1, window * window, hidden)
        q, k, v = project(x).chunk(3, -1)
        return ((q @ k.transpose(1, 2)).softmax(-1) @ v).square().mean()

    return training(project.parameters(), loss)


@case(image=256, multiple=64)
def padded_image(batch: int = 2, image: int = 30, width: int = 8, multiple: int = 8) -> Step:
    """An image is padded to a multiple, goes down twice, and is pooled to a fixed size."""
    down = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU())
    head = nn.Linear(2 * width * 4, 10)

    def loss() -> Tensor:
        x = torch.randn(batch, 3, image, image)
        pad = (multiple - x.shape[-1] % multiple) % multiple
        return head(F.adaptive_avg_pool2d(down(F.pad(x, (0, pad, 0, pad))), 2).flatten(1)).square().mean()

    return training([*down.parameters(), *head.parameters()], loss)


def _enough(s: dict[str, int]) -> None:
    s["kernel"] = max(1, s["kernel"])
    s["stride"] = max(1, s["stride"])
    s["dilation"] = max(1, s["dilation"])
    s["image"] = max(s["image"], s["dilation"] * (s["kernel"] - 1) + 1, 8)


@case(mend=_enough, image=300, kernel=9, stride=6, dilation=6, padding=8)
def dilated(
    batch: int = 2,
    image: int = 32,
    width: int = 8,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 2,
) -> Step:
    """One convolution with everything, pooled to a few places."""
    model = nn.Sequential(
        nn.Conv2d(3, width, kernel, stride, padding, dilation),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 4),
    )
    return fit(model, torch.randn(batch, 3, image, image))


@case(mend=lambda s: s.update(seq=max(s["seq"], s["bins"])), bins=64)
def pooled(batch: int = 4, seq: int = 100, hidden: int = 24, bins: int = 5) -> Step:
    """A sequence pooled to a number of bins."""
    layer, head = nn.Conv1d(hidden, hidden, 3, padding=1), nn.Linear(hidden * bins, 3)
    loss = lambda: head(F.adaptive_avg_pool1d(layer(torch.randn(batch, hidden, seq)), bins).flatten(1)).mean()  # noqa: E731
    return training([*layer.parameters(), *head.parameters()], loss)


@case(mend=at_least("seq", "frame"))
def framed(batch: int = 3, seq: int = 200, frame: int = 25, hop: int = 10, hidden: int = 16) -> Step:
    """Overlapping frames of a signal: 1 + (seq - frame) // hop of them."""
    count = 1 + (seq - frame) // hop
    layer, table = nn.Linear(frame, hidden), nn.Parameter(torch.randn(count, hidden))
    frames = lambda: torch.randn(batch, seq).unfold(1, frame, hop)  # noqa: E731
    return training([*layer.parameters(), table], lambda: (layer(frames()) + table).square().mean())


def _heads(s: dict[str, int]) -> None:
    s["heads"] = s["kv_heads"] * max(1, round(s["heads"] / s["kv_heads"]))
    s["hidden"] = 2 * s["heads"] * max(1, round(s["hidden"] / 2 / s["heads"]))


@case(mend=_heads, heads=128, kv_heads=32)
def grouped_queries(batch: int = 1, seq: int = 32, hidden: int = 64, heads: int = 4, kv_heads: int = 2) -> Step:
    """Grouped queries in a batch of one: keys are repeated, the mask is cut from a square."""
    size = hidden // heads
    q_proj, k_proj = nn.Linear(hidden, heads * size, bias=False), nn.Linear(hidden, kv_heads * size, bias=False)
    v_proj, o_proj = nn.Linear(hidden, kv_heads * size, bias=False), nn.Linear(heads * size, hidden, bias=False)

    def loss() -> Tensor:
        x = torch.randn(batch, seq, hidden)
        q = q_proj(x).view(batch, seq, heads, size).transpose(1, 2)
        k, v = (p(x).view(batch, seq, kv_heads, size).transpose(1, 2) for p in (k_proj, v_proj))
        k, v = (
            t[:, :, None].expand(batch, kv_heads, heads // kv_heads, seq, size).reshape(batch, heads, seq, size)
            for t in (k, v)
        )
        scores = (q @ k.transpose(2, 3) / size**0.5).masked_fill(torch.ones(seq, seq).tril() == 0, float("-inf"))
        return o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, -1)).square().mean()

    return training([*q_proj.parameters(), *k_proj.parameters(), *v_proj.parameters(), *o_proj.parameters()], loss)


@case(mend=all_of(multiple("hidden", "groups")), groups=64)
def grouped_convolution(batch: int = 4, seq: int = 4, hidden: int = 4, groups: int = 2, kernel: int = 3) -> Step:
    """Groups of channels, everything small or equal."""
    model = nn.Sequential(
        nn.Conv1d(hidden, 2 * hidden, kernel, padding="same", groups=groups),
        nn.GELU(),
        nn.Conv1d(2 * hidden, hidden, 1),
    )
    return fit(model, torch.randn(batch, hidden, seq))
