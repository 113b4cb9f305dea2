"""TF32 as a program sets it, through any of PyTorch's interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import UNSET, json

from tensortide.graph.precision import in_tf32
from tensortide.recorder import capture
from tensortide.recorder.settings import TABLE, change, snapshot

CUDA, CUDNN = torch.backends.cuda, torch.backends.cudnn


def put(holder: Any, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(holder, name, value)


SETTINGS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "matmul.allow_tf32": (put(CUDA.matmul, "allow_tf32", True), ("products", "convolutions")),
    "matmul precision": (lambda: torch.set_float32_matmul_precision("high"), ("products", "convolutions")),
    "cudnn.allow_tf32": (put(CUDNN, "allow_tf32", False), ()),
    "matmul.fp32_precision": (put(CUDA.matmul, "fp32_precision", "tf32"), ("products", "convolutions")),
    "conv.fp32_precision": (put(CUDNN.conv, "fp32_precision", "ieee"), ()) if hasattr(CUDNN, "conv") else (print, ()),
}


@pytest.mark.skipif("cuda.conv" not in TABLE, reason="this PyTorch does not tell")
@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_program_sets_is_recorded(name: str) -> None:
    setting, expected = SETTINGS[name]

    def workload() -> Callable[[], torch.Tensor]:
        setting()
        return lambda: torch.ones(2) + 1

    before = snapshot()
    meta = capture(workload).meta
    assert in_tf32(meta) == expected
    assert b'"tf32"' in json.encode(meta)
    assert snapshot() == before
    change(before)


def test_a_program_that_sets_nothing_has_no_key_and_means_convolutions() -> None:
    meta = capture(lambda: torch.ones(2) + 1).meta
    assert meta.tf32 is UNSET
    assert in_tf32(meta) == ("convolutions",)
    assert not {"tf32", "attention"} & json.decode(json.encode(meta)).keys()
