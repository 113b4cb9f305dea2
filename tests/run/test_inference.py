"""Layers give the same in inference mode, without gradients and with them, under autocast too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import tensortide
from tests.run.same import UNLIMITED, identical

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own
WIDTH = 8
MODES = {"inference": torch.inference_mode, "no_grad": torch.no_grad, "grad": contextlib.nullcontext}


def recurrent(kind: Callable[..., nn.RNNBase], **settings: Any) -> Callable[[], list[Callable[[], Any]]]:
    def build() -> list[Callable[[], Any]]:
        layers = [kind(WIDTH, 8, batch_first=True, bias=bias, **settings) for bias in (True, False)]
        rows = torch.randn(3, 1, WIDTH)
        packed = pack_padded_sequence(torch.randn(3, 5, WIDTH), torch.tensor([5, 3, 1]), batch_first=True)
        return [lambda layer=layer, given=given: layer(given)[0] for layer in layers for given in (rows, packed)]  # type: ignore[misc]

    return build


def attending() -> list[Callable[[], Any]]:
    x, padded = torch.randn(4, 6, WIDTH), torch.zeros(4, 6, dtype=torch.bool)
    padded[:, 4:] = True
    attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True).eval()
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), 2).eval()
    return [lambda: attention(x, x, x)[0], lambda: encoder(x), lambda: encoder(x, src_key_padding_mask=padded)]


def others() -> list[Callable[[], Any]]:
    x, images = torch.randn(4, 6, WIDTH), torch.randn(2, 8, 6, 6)
    bilinear, convolution = nn.Bilinear(WIDTH, WIDTH, 5), nn.Conv2d(8, 8, 3, groups=4, padding=1)
    return [
        lambda: bilinear(x, x),
        lambda: convolution(images),
        lambda: F.interpolate(images, scale_factor=2.0, mode="bilinear"),
        lambda: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
        lambda: torch.einsum("bij,bkj->bik", x, x),
        lambda: x.to(torch.float64).reshape(8, -1).t(),
    ]


LAYERS: dict[str, Callable[[], list[Callable[[], Any]]]] = {
    "gru": recurrent(nn.GRU, bidirectional=True),
    "rnn": recurrent(nn.RNN, bidirectional=True),
    "lstm": recurrent(nn.LSTM, num_layers=2),
    "lstm, projected": recurrent(nn.LSTM, proj_size=4),
    "attention": attending,
    "others": others,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_give_the_same(name: str, mode: str) -> None:
    torch.manual_seed(0)
    calls = LAYERS[name]()

    def results() -> list[Tensor]:
        with MODES[mode]():
            made = [call() for call in calls]
        return [getattr(value, "data", value).clone() for value in made]

    expected = results()
    with tensortide.budget(UNLIMITED):
        found = results()
    assert all(map(identical, found, expected))


@pytest.mark.parametrize("inside", [False, True])
def test_layers_in_recurrent_ones_are_cast(inside: bool) -> None:
    layer, x = nn.GRU(WIDTH, WIDTH), torch.randn(3, 2, WIDTH)

    def result() -> Tensor:
        made: Tensor = layer(x)[0]
        return made.clone()

    with torch.inference_mode():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = result()
        assert not identical(expected, result())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not inside), tensortide.budget(UNLIMITED):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert identical(result(), expected)
            with torch.autocast("cpu", enabled=False):
                assert not identical(result(), expected)
