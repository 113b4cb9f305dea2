"""Recurrent layers against cells computed one number at a time, and fused ops against their parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.cost import count
from tests.cost.probe import Number, assert_counted, cost_of, cost_of_call, numbers, recorded, tally, tensor, total

STEPS, BATCH, X, HIDDEN = 3, 2, 4, 5


def sigmoid(x: Number) -> Number:
    return Number(1) / ((x * -1).function(math.exp) + 1)


def tanh(x: Number) -> Number:
    return x.function(math.tanh)


def gate(biases: bool) -> Number:
    """The two products of a gate joined, with their biases; the products themselves are MACs."""
    joined = Number(0.1) + Number(0.2)
    return joined + 0.3 + 0.4 if biases else joined


def lstm_unit(biases: bool) -> Number:
    i, f, o = (sigmoid(gate(biases)) for _ in range(3))
    cell = f * Number(0.5) + i * tanh(gate(biases))
    return o * tanh(cell)


def gru_unit(biases: bool) -> Number:
    r, z = (sigmoid(gate(biases)) for _ in range(2))
    given, fed_back = Number(0.1), Number(0.2)
    if biases:
        given, fed_back = given + 0.3, fed_back + 0.4
    candidate = tanh(given + r * fed_back)
    return candidate + z * (Number(0.5) - candidate)


def rnn_unit(biases: bool) -> Number:
    return tanh(gate(biases))


UNITS = {nn.LSTM: (lstm_unit, 4), nn.GRU: (gru_unit, 3), nn.RNN: (rnn_unit, 1)}


@pytest.mark.parametrize("biases", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("kind", UNITS, ids=lambda kind: kind.__name__)
def test_layers_against_units(kind: Any, biases: bool) -> None:
    unit, gates = UNITS[kind]
    with tally() as done:
        for _ in range(STEPS * BATCH * HIDDEN):
            unit(biases)
    layer, x = kind(X, HIDDEN, bias=biases), torch.randn(STEPS, BATCH, X)
    cost = cost_of(lambda: layer(x))
    assert cost.macs == STEPS * BATCH * gates * HIDDEN * (X + HIDDEN)
    assert (cost.elementwise_flops, cost.transcendentals) == (done.flops, done.special)
    mode = {nn.LSTM: 2, nn.GRU: 3, nn.RNN: 1}[kind]
    weights = tuple(tensor(1) for _ in range(4 if biases else 2))
    kernel = kernel_cost("aten._cudnn_rnn.default", mode, weights)
    assert (kernel.macs, kernel.elementwise_flops, kernel.transcendentals) == (cost.macs, done.flops, done.special)


def kernel_cost(name: str, mode: int, weights: tuple[Any, ...], **options: Any) -> Any:
    call = {"input": tensor(STEPS, BATCH, X), "weight": weights, "hx": tensor(1, BATCH, HIDDEN), "mode": mode}
    sizes = {"hidden_size": HIDDEN, "proj_size": 0, "num_layers": 1, "bidirectional": False, "batch_first": False}
    return cost_of_call(name, call | sizes | options, tensor(STEPS, BATCH, HIDDEN), tensor(1, BATCH, HIDDEN))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_layers_directions_and_projection_against_the_parts() -> None:
    """A projected LSTM is dispatched as its parts, which have rules of their own."""
    layer, x = nn.LSTM(X, HIDDEN, 2, bidirectional=True, proj_size=3), torch.randn(STEPS, BATCH, X)
    parts = count(recorded(lambda: layer(x)))
    assert "aten.mkldnn_rnn_layer" not in parts.by_op
    weights = tuple(tensor(1) for _ in range(5 * 4))
    kernel = kernel_cost(
        "aten._cudnn_rnn.default", 2, weights, proj_size=3, num_layers=2, bidirectional=True, hx=tensor(4, BATCH, 3)
    )
    assert kernel.macs == parts.total.macs
    assert kernel.elementwise_flops == parts.total.cost.elementwise_flops


def test_packed_sequences_count_the_steps_that_exist() -> None:
    layer = nn.LSTM(X, HIDDEN)
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, X), torch.randn(1, X)])
    assert cost_of(lambda: layer(packed)).macs == 4 * 4 * HIDDEN * (X + HIDDEN)


@pytest.mark.parametrize(("mask", "given", "state"), [((0, 0, 0, 1), 0, 0), ((1, 0, 0, 1), 1, 0), ((1, 1, 1, 1), 1, 1)])
def test_backward_by_wanted_gradients(mask: tuple[int, ...], given: int, state: int) -> None:
    """Against the products of every step: to the weights always, to the input and the state before if wanted."""
    gates = 4 * HIDDEN
    expected = 0
    for step in range(STEPS):
        expected += BATCH * gates * (X + HIDDEN)
        expected += BATCH * gates * X if given else 0
        expected += BATCH * gates * HIDDEN if step > 0 or state else 0
    call = {"input": tensor(STEPS, BATCH, X), "weight": (tensor(1),) * 4, "hx": tensor(1, BATCH, HIDDEN), "mode": 2}
    sizes = {"hidden_size": HIDDEN, "proj_size": 0, "num_layers": 1, "output_mask": tuple(map(bool, mask))}
    grads = (tensor(STEPS, BATCH, X), tensor(1, BATCH, HIDDEN), tensor(1, BATCH, HIDDEN))
    assert cost_of_call("aten._cudnn_rnn_backward.default", call | sizes, *grads).macs == expected


def through(gate: Number, slope: int) -> Number:
    """The gradient before a gate's activation: times y (1 - y) for a sigmoid, 1 - y y for tanh."""
    y = Number(0.5)
    return gate * ((1 - y) * y) if slope == 1 else gate * (1 - y * y)


def lstm_backward() -> None:
    i, f, o, g, cell = (Number(0.5) for _ in range(5))
    out = Number(1) + Number(1)
    high = cell.function(math.tanh)
    of_cell = Number(1) + out * o * (1 - high * high)
    _ = of_cell * f
    for gate in (out * high, of_cell * g, of_cell * Number(0.5)):
        through(gate, 1)
    through(of_cell * i, 2)


def gru_backward() -> None:
    r, z, given, before = (Number(0.5) for _ in range(4))
    out = Number(1) + Number(1)
    _ = out * z
    candidate = through(out * (1 - z), 2)
    through(out * (before - given), 1)
    through(candidate * given, 1)
    _ = candidate * r


def rnn_backward() -> None:
    through(Number(1) + Number(1), 2)


def relu_backward() -> None:
    (Number(1) + Number(1)).selected(lambda value: value)


UNITS_BACKWARD = [(0, 1, relu_backward), (1, 1, rnn_backward), (2, 4, lstm_backward), (3, 3, gru_backward)]


@pytest.mark.parametrize(("mode", "gates", "unit"), UNITS_BACKWARD)
def test_backward_by_hand(mode: int, gates: int, unit: Callable[[], None]) -> None:
    """Per unit, and for the gradients of the biases sums over all steps."""
    with tally() as done:
        for _ in range(STEPS * BATCH * HIDDEN):
            unit()
        for _ in range(gates * HIDDEN):
            total(numbers(STEPS * BATCH))
    weights = tuple(tensor(1) for _ in range(4))
    wanted = (False, False, False, True)
    assert_counted(kernel_cost("aten._cudnn_rnn_backward.default", mode, weights, output_mask=wanted), done)


@pytest.mark.parametrize(("name", "gates", "unit"), [("lstm", 4, lstm_backward), ("gru", 3, gru_backward)])
def test_backward_of_a_cell_by_hand(name: str, gates: int, unit: Callable[[], None]) -> None:
    """A cell is given one gradient of its state, a layer adds two."""
    with tally() as done:
        for _ in range(BATCH * HIDDEN):
            unit()
        for _ in range(gates * HIDDEN):
            total(numbers(BATCH))
    call = {"grad_hy": tensor(BATCH, HIDDEN), "cx": tensor(BATCH, HIDDEN), "has_bias": True}
    cost = cost_of_call(f"aten._thnn_fused_{name}_cell_backward.default", call, tensor(BATCH, gates * HIDDEN))
    assert cost.elementwise_flops == done.flops - BATCH * HIDDEN
    assert cost.transcendentals == done.special


def test_numbers_helper_counts() -> None:
    with tally() as done:
        a, b = numbers(2)
        (a + b) * a
    assert (done.flops, done.special) == (2, 0)
