"""A model with its inputs as a step: its optimizer is made of stand-ins, and what cannot be one is one message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import CaptureError, ProgramFailed, WorkloadError
from tensortide.recorder.torch_compat import FakeTensor


def fits(model: nn.Module, inputs: torch.Tensor | None = None, optimizer: Any = "adamw") -> Any:
    return tensortide.fits(model, torch.ones(2, 8) if inputs is None else inputs, optimizer, gpu="t4")


def test_an_optimizer_makes_its_state_of_stand_ins() -> None:
    """Adagrad makes it when it is made."""

    def made(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adagrad(parameters)
        assert all(isinstance(value, FakeTensor) for state in optimizer.state.values() for value in state.values())
        return optimizer

    graph = tensortide.capture(nn.Linear(8, 8, bias=False), torch.ones(2, 8), loss="sum", optimizer=made)
    state = [each.nbytes for each in graph.storages if each.role is tensortide.Role.OPTIMIZER_STATE]
    assert max(state) == 8 * 8 * 4


@pytest.mark.parametrize(
    ("optimizer", "kind", "message"),
    [
        (lambda parameters: None, WorkloadError, "for an optimizer returned None: it returns the optimizer"),
        (lambda parameters: 5, WorkloadError, "for an optimizer returned a int"),
        (lambda: None, ProgramFailed, "takes 0 positional arguments but 1 was given"),
        ("muon", ProgramFailed, "Muon only supports 2D parameters"),
    ],
)
def test_an_optimizer_that_cannot_be_made(optimizer: str | Callable[..., Any], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        fits(nn.Linear(8, 8), optimizer=optimizer)


def test_a_lazy_module_has_no_shapes() -> None:
    with pytest.raises(CaptureError, match="a lazy module has no shapes yet"):
        fits(nn.LazyLinear(8))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_inputs_of_any_size_are_on_the_gpu(rows: int) -> None:
    assert fits(nn.Linear(8, 8), torch.ones(rows, 8)).answer == "yes"
