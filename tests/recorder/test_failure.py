"""What a capture cannot do it says in the user's terms."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import CaptureError

net = nn.Linear(8, 4)
x = torch.randn(4, 8)


def test_what_cannot_be_stood_in_for_says_so() -> None:
    with warnings.catch_warnings(action="ignore"):
        scripted = torch.jit.script(nn.Linear(8, 4))
    registry: Any = __import__("json").__dict__
    registry["hidden"] = hidden = nn.Linear(8, 4)
    try:
        with pytest.raises(CaptureError, match=r"cannot reach: float32\[4, 8\]"):
            capture(lambda: __import__("json").hidden(x).sum().backward())
    finally:
        del registry["hidden"]
    assert hidden.weight.grad is None
    for model, message in ((scripted, "TorchScript"), (nn.LazyLinear(4), "lazy module")):
        for real in (False, True):
            with pytest.raises(CaptureError, match=message):
                capture(model, x, real=real)

    def stepwise() -> Iterator[Any]:
        yield net(x)

    with pytest.raises(CaptureError, match="it returned a generator, which has not run"):
        capture(stepwise)
    with warnings.catch_warnings(action="ignore"):
        quantized: Any = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    with pytest.raises(CaptureError, match="no fake form"):
        capture(lambda: quantized.dequantize() + 1)
    assert len(capture(lambda: quantized.dequantize() + 1, real=True)) == 2
