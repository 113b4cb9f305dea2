"""Convolutions as people write them, with integer hyperparameters; cases as in ``ordinary.py``."""

# the call of a module returns whatever its forward does
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import nn

from tests.formulas.ordinary import CASES, Step, case, fit

__all__ = ["CASES"]


# -- convolutions ---------------------------------------------------------------------------------------


def _fits(s: dict[str, int]) -> None:
    s["padding"] = min(s["padding"], s["kernel"] // 2)
    s["image"] = max(s["image"], s["dilation"] * (s["kernel"] - 1) + 1)


@case(mend=_fits, kernel=31, image=512, padding=15, dilation=16, stride=16)
def convolution(
    batch: int = 8,
    image: int = 64,
    width: int = 16,
    kernel: int = 5,
    stride: int = 2,
    padding: int = 2,
    dilation: int = 1,
) -> Step:
    """One convolution with all that it has."""
    if image + 2 * padding < dilation * (kernel - 1) + 1:
        raise ValueError(f"kernel={kernel} does not fit image={image}")
    model = nn.Sequential(nn.Conv2d(3, width, kernel, stride, padding, dilation), nn.ReLU(), nn.Flatten(2))
    return fit(model, torch.randn(batch, 3, image, image))


@case(mend=_fits, kernel=31, image=512, padding=15)
def unpadded(
    batch: int = 4, image: int = 32, width: int = 8, kernel: int = 3, padding: int = 0, dilation: int = 1
) -> Step:
    """Padding is 0 by default."""
    model = nn.Sequential(nn.Conv2d(1, width, kernel, padding=padding, dilation=dilation), nn.ReLU())
    return fit(model, torch.randn(batch, 1, image, image))


@case(mend=lambda s: s.update(samples=max(s["samples"], 8 * s["kernel"])), kernel=99)
def audio(batch: int = 4, samples: int = 16000, width: int = 32, kernel: int = 10, stride: int = 5) -> Step:
    """Strided convolutions over time, padded by half a kernel, then pooled."""
    model = nn.Sequential(
        nn.Conv1d(1, width, kernel, stride, kernel // 2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(width, 2 * width, 3, 2),
        nn.ReLU(),
    )
    return fit(model, torch.randn(batch, 1, samples))


@case(levels=9)
def tcn(batch: int = 4, seq: int = 256, width: int = 16, levels: int = 4, kernel: int = 3) -> Step:
    """Dilations of 2**i, with as much padding on the left."""
    layers: list[nn.Module] = []
    for level in range(levels):
        layers += [
            nn.ConstantPad1d(((kernel - 1) * 2**level, 0), 0.0),
            nn.Conv1d(width, width, kernel, dilation=2**level),
            nn.ReLU(),
        ]
    return fit(nn.Sequential(*layers), torch.randn(batch, width, seq))


@case(levels=13)
def powers(batch: int = 16, inputs: int = 64, levels: int = 8) -> Step:
    """A width of 2**levels."""
    width = 2**levels
    return fit(nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 1)), torch.randn(batch, inputs))
