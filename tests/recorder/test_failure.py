"""What a capture cannot do it says in the user's terms."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import CaptureError, headline
from tensortide.recorder.failure import resident_bytes

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


def masked() -> Any:
    """A step whose sizes depend on values."""
    return lambda: net(x)[net(x) > 0] * 2


def wrong() -> Any:
    """A step that fails on any tensors."""
    return lambda: net(x.T)


@pytest.mark.parametrize("workload", [masked, wrong])
def test_advice_names_what_can_help(workload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def advice(**how: Any) -> str:
        with pytest.raises(CaptureError) as error:
            capture(workload, real=False, **how)
        return str(error.value).splitlines()[-1]

    assert "--real (real=True)" in advice()
    assert "--real" not in advice(device="cuda")  # there is no GPU on which it could run
    assert "capture the CPU's step, with --device cpu" in advice(device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "this machine's own GPU, without --device and --machine, with --real" in advice(device="cuda")


def test_nested_tensors_without_a_fake_form_say_what_has_one() -> None:
    def step() -> None:
        with warnings.catch_warnings(action="ignore"):
            torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)])

    with pytest.raises(CaptureError, match=r"nested tensor of the strided layout.*\n.*\n.*layout=torch.jagged"):
        capture(step, real=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_here_is_pretended_on_request() -> None:
    def workload(device: str = "cuda") -> Any:
        model = nn.Linear(8, 4).to(device)
        return lambda: model(x.to(device)).sum().backward()

    with pytest.raises(CaptureError, match=r"uses a GPU, and there is none here(.|\n)*--device cuda"):
        capture(workload)
    assert capture(workload, device="cuda").index.main_device == "cuda:0"


@pytest.mark.parametrize(
    ("said", "headlines"),
    [
        ("wrong\nsecond line", "wrong"),
        ("", ""),
        (
            "Exception encountered when calling Net.call().\n\n\x1b[1mwrong\x1b[0m\n\nArguments: x",
            "wrong (calling Net.call())",
        ),
        (
            "in user code:\n\n    File net.py, line 3, in f\n    raise ValueError\n\n    ValueError: wrong",
            "ValueError: wrong",
        ),
    ],
)
def test_the_words_of_frameworks_do_not_hide_what_was_raised(said: str, headlines: str) -> None:
    assert headline(ValueError(said)) == headlines


def test_fake_tensors_with_symbols_for_sizes_are_of_other_programs() -> None:
    batch = torch.export.Dim("batch")
    before = resident_bytes()
    program = torch.export.export(nn.Linear(8, 4), (torch.ones(3, 8),), dynamic_shapes=({0: batch},))
    assert isinstance(resident_bytes(), int)
    assert resident_bytes() - before < 1000
    assert program.graph is not None
