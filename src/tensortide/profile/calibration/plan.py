"""The steps of a calibration, by name: together they have the ops that training steps are made of.

Each family occurs in several steps at other sizes, so that a step that is held out is predicted from its like. None is
a model of its own, and none of the built-in examples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from tensortide.profile.calibration import networks, ops
from tensortide.profile.calibration.networks import Step

Sizes = list[tuple[int, ...]]


def _grid(*logarithms: tuple[int, ...]) -> Sizes:
    """All sizes whose dimensions have these binary ``logarithms``."""
    return [tuple(2**each for each in place) for place in itertools.product(*logarithms)]


PLAN: Mapping[str, Callable[[], Step]] = {
    "linear layers": partial(networks.linear, 64, (256, 512, 512, 128)),
    "3x3 convolutions": partial(networks.convolutions, 8, 32, (3, 32, 64, 128), pool=2),
    "transformer blocks": partial(networks.transformer, 8, 64, 256, 4, dropout=0.1),
    "pointwise ops": partial(ops.pointwise, (1, 256, 8192), 512),
    "1x1 convolutions": partial(networks.convolutions, 8, 28, (64, 256, 64, 256), kernel=1),
    "vocabulary": partial(networks.vocabulary, 256, 8192, 256, adam=True),
    "products": partial(ops.products, _grid((5, 8, 10), (5, 8, 11), (5, 8, 11))),
    "depthwise convolutions": partial(networks.depthwise, 8, 28, 96, layers=3),
    "LSTM layers": partial(networks.recurrent, nn.LSTM, 16, 32, 256, 2),
    "softmaxes and losses": partial(ops.softmaxes, (8, 2048), 1000),
    "wide linear layers": partial(networks.linear, 256, (1024, 4096, 1024, 1000), adam=True),
    "copies": partial(ops.copies, (8, 512, 8192), 512),
    "wide 3x3 convolutions": partial(networks.convolutions, 4, 14, (128, 256, 512, 256)),
    "causal blocks": partial(networks.transformer, 2, 128, 512, 8, causal=True),
    "transcendental ops": partial(ops.transcendental, (1, 256, 8192), 512),
    "narrow 1x1 convolutions": partial(networks.convolutions, 4, 56, (16, 96, 24, 144, 32), kernel=1),
    "reductions": partial(ops.reductions, (8, 512, 8192), 512),
    "linear layers of few rows": partial(networks.linear, 4, (8192, 8192, 1000)),
    "batched products": partial(ops.batched, [(8, 64, 64, 64), (64, 32, 128, 32), (16, 256, 256, 64)]),
    "strided depthwise convolutions": partial(networks.depthwise, 4, 56, 144, layers=2, stride=2),
    "GRU layers": partial(networks.recurrent, nn.GRU, 32, 24, 128),
    "random numbers": partial(ops.random, (8, 2048), 512),
    "small linear layers": partial(networks.linear, 16, (8, 16, 24, 32, 48, 32, 24, 16, 10)),
    "large images": partial(networks.convolutions, 2, 160, (3, 64, 64), kernel=7, stride=2, pool=3),
    "attention of plain ops": partial(networks.transformer, 4, 96, 384, 6, plain=True, dropout=0.1),
    "indices and sorting": partial(ops.gathered, (8, 1024), 256),
    "normalizations": partial(networks.normalized, 8, 32, 64),
    "pooling": partial(networks.pooled, 8, 56, 64),
    "large vocabulary": partial(networks.vocabulary, 128, 50_000, 384, adam=True),
    "deep 1x1 convolutions": partial(networks.convolutions, 8, 7, (320, 960, 160, 1280), kernel=1),
    "other products": partial(ops.products, _grid((4, 7, 9), (6, 9, 10), (6, 9, 10))),
    "other batched products": partial(ops.batched, [(4, 16, 16, 512), (96, 64, 64, 24), (32, 128, 64, 128)]),
    "other pointwise ops": partial(ops.pointwise, (16, 2048, 16_384), 512),
    "depthwise convolutions of many channels": partial(networks.depthwise, 8, 14, 480, layers=2),
    "other transcendental ops": partial(ops.transcendental, (16, 2048), 512),
    "other reductions": partial(ops.reductions, (64, 2048, 16_384), 512),
    "long sequences": partial(networks.transformer, 1, 512, 256, 4, causal=True),
    "transposed convolutions": partial(networks.transposed, 4, 14, (128, 64, 32)),
    "other losses": partial(ops.softmaxes, (128, 512), 2000),
    "other copies": partial(ops.copies, (64, 2048, 16_384), 512),
    "depthwise convolutions of large images": partial(networks.depthwise, 8, 112, 48, layers=1),
    "3x3 convolutions of large images": partial(networks.convolutions, 8, 112, (3, 64, 64)),
    "short sequences": partial(networks.transformer, 2, 24, 192, 6),
    "1x1 convolutions of large images": partial(networks.convolutions, 8, 112, (32, 16, 64), kernel=1),
    "small images": partial(networks.convolutions, 1, 7, (192, 384, 768), pool=2),
    "other indices": partial(ops.gathered, (128, 512), 512),
    "other random numbers": partial(ops.random, (128, 4096), 512),
    "other normalizations": partial(networks.normalized, 4, 64, 32),
    "many heads": partial(networks.transformer, 4, 256, 512, 16),
    "depthwise convolutions of small images": partial(networks.depthwise, 2, 7, 960, layers=2),
    "pooling of small images": partial(networks.pooled, 16, 28, 128),
    "wide LSTM layers": partial(networks.recurrent, nn.LSTM, 64, 64, 512),
}
