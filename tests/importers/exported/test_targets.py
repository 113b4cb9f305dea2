"""Functions of the user's that return a program, and those that only use torch.fx on the way to a step."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensortide
from tensortide.cost import count

PROGRAM = """
import torch


class Loop(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = torch.nn.Linear(width, width)

    def forward(self, i, x):
        return torch._higher_order_ops.while_loop(lambda i, _: i < 9, lambda i, x: (i + 1, self.w(x)), (i, x))


def program(width=6):
    return torch.export.export(Loop(width), (torch.tensor(0), torch.randn(2, width)))


def step(width=6):
    model = torch.fx.symbolic_trace(torch.nn.Linear(width, width))
    x = torch.randn(2, width)
    return lambda: model(x).sum().backward()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path := tmp_path / "targets.py").write_text(PROGRAM)
    return path


@pytest.mark.filterwarnings("ignore")
def test_a_function_may_return_a_program(file: Path) -> None:
    graph = tensortide.open(f"{file}:program", hyperparameters={"width": 8, "trips.while_loop": 9}).graph
    assert [(loop.trips, loop.assumed) for loop in graph.loops] == [(9, False)]
    assert count(graph, strict=True).total.macs == 9 * 2 * 8 * 8
    assert graph.meta.hyperparameters == {"width": 8}


def test_a_step_of_a_model_that_torch_fx_traced_is_captured(file: Path) -> None:
    graph = tensortide.open(f"{file}:step", hyperparameters={"width": 8}).graph
    assert graph.meta.captured_on == "fake"
    assert count(graph).total.macs == 2 * 2 * 8 * 8
