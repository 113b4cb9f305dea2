"""Recurrent cells on a pretended GPU, where one op takes the place of the pointwise part of a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide import capture
from tensortide.graph.model import Graph, Role
from tensortide.parallelism import Degrees, per_rank
from tensortide.recorder.fake_shapes import SHAPES

STEPS, BATCH, FEATURES, HIDDEN = 3, 8, 5, 7
CELLS = {"GRUCell": "gru_cell", "LSTMCell": "lstm_cell"}


def trained(kind: str, *, bias: bool = True) -> Callable[[], Any]:
    cell, head = getattr(nn, kind)(FEATURES, HIDDEN, bias=bias), nn.Linear(HIDDEN, 2)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1, foreach=False)
    x = torch.randn(STEPS, BATCH, FEATURES)

    def step() -> Any:
        state: Any = None
        for t in range(STEPS):
            state = cell(x[t], state)
        loss = head(state[0] if kind == "LSTMCell" else state).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def fused(graph: Graph) -> Counter[str]:
    return Counter(view.call.op for view in graph if "_thnn_fused" in view.call.op)


@cache
def captured(kind: str, bias: bool) -> tuple[Graph, Graph]:
    """The step on a pretended GPU and on the CPU."""
    return capture(trained(kind, bias=bias), machine="H100-SXM-80GB"), capture(trained(kind, bias=bias))


@pytest.mark.parametrize(("kind", "bias"), [("GRUCell", False), ("LSTMCell", True)])
def test_a_step_of_cells_is_captured_with_fused_ops_and_the_gradients_of_the_cpu(kind: str, bias: bool) -> None:
    gpu, cpu = captured(kind, bias)
    back = "backward_impl" if kind == "LSTMCell" else "backward"
    name = f"aten._thnn_fused_{CELLS[kind]}"
    assert fused(gpu) == {f"{name}.default": STEPS, f"{name}_{back}.default": STEPS}
    assert not fused(cpu)
    for role in (Role.PARAMETER, Role.GRADIENT):
        of = [{(e.name, graph.tensors[e.tensor].shape) for e in graph.named if e.role is role} for graph in (gpu, cpu)]
        assert of[0] == of[1]
        assert of[0]
    assert tensortide.count(gpu).total.macs == tensortide.count(cpu).total.macs
    assert not tensortide.count(gpu).coverage.missing


def decomposed(gates: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor, *biases: torch.Tensor) -> torch.Tensor:
    """The GRU cell behind its two products, op by op."""
    given, fed_back = (gates + biases[0], hidden + biases[1]) if biases else (gates, hidden)
    (r, z, n), (hr, hz, hn) = given.chunk(3, 1), fed_back.chunk(3, 1)
    update = torch.sigmoid(z + hz)
    candidate = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    return candidate + update * (state - candidate)


@pytest.mark.parametrize("bias", [True, False])
def test_shapes_of_the_fused_gru_are_those_of_its_parts(bias: bool) -> None:
    with torch.random.fork_rng():
        x, state = torch.randn(BATCH, FEATURES), torch.randn(BATCH, HIDDEN, requires_grad=True)
        cell = nn.GRUCell(FEATURES, HIDDEN, bias=bias)
    products = [x @ cell.weight_ih.T, state.detach() @ cell.weight_hh.T]
    products = [product.detach().requires_grad_() for product in products]
    biases = [cell.bias_ih, cell.bias_hh] if bias else []
    made = decomposed(*products, state, *biases)
    torch.testing.assert_close(made, cell(x, state))
    new, workspace = SHAPES[torch.ops.aten._thnn_fused_gru_cell.default](*products, state, *biases)
    assert (new.shape, new.dtype) == (made.shape, made.dtype)
    assert workspace.shape == (BATCH, 5 * HIDDEN)
    gradients = torch.autograd.grad(made.sum(), [*products, state, *biases])
    back = SHAPES[torch.ops.aten._thnn_fused_gru_cell_backward.default](torch.ones_like(made), workspace, bias)
    shapes = [None if each is None else each.shape for each in back]
    assert shapes == [each.shape for each in gradients] + [None, None] * (not bias)


@pytest.mark.parametrize("kind", CELLS)
def test_replicas_average_the_gradients_that_those_of_the_cpu_average(kind: str) -> None:
    def averaged(graph: Graph) -> int:
        return sum(each.nbytes for each in per_rank(graph, Degrees(data=2)).collectives)

    gpu, cpu = captured(kind, kind == "LSTMCell")
    assert averaged(gpu) == averaged(cpu) > 0
