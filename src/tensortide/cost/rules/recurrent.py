"""Recurrent layers and cells: LSTM, GRU, tanh and ReLU RNN. Counting convention: docs/cost.md, recurrent layers.

LSTM after Hochreiter and Schmidhuber, 1997; GRU after Cho et al., 2014, with the reset gate behind the product.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost, summed
from tensortide.cost.registry import rule

FORWARD = "per layer and direction: T B G (X + H) MACs, G = 4H (LSTM), 3H (GRU), H (RNN)"
BACKWARD = "per layer and direction: T B G X if wanted + (T-1) B G H (T B G H if the initial state's is wanted)"
BACKWARD += " + T B G (X + H) for the weights"


class Cell(NamedTuple):
    """Gates, and per (step, batch, hidden unit) elementwise work with its transcendentals, forward and backward.

    The backward of an LSTM makes the tanh of the cell state again.
    """

    gates: int
    work: int
    transcendentals: int
    backward: int
    transcendentals_backward: int = 0
    relu: bool = False

    def per_unit(self, biases: bool) -> int:
        """Joining the two products, activations and blending; two bias adds per gate."""
        return self.work + (2 * self.gates if biases else 0)


LSTM = Cell(4, 22, 8, 24, 1)
GRU = Cell(3, 16, 5, 17)
TANH = Cell(1, 2, 1, 4)
RELU = Cell(1, 2, 0, 2, relu=True)
MODES = (RELU, TANH, LSTM, GRU)
"""Cells by the number that the kernels' ``mode`` argument has."""


class Layer(NamedTuple):
    """One layer in one direction: rows T B of all steps, batch, input size, hidden size, projection (0: none)."""

    cell: Cell
    rows: int
    batch: int
    x: int
    hidden: int
    projection: int = 0
    biases: bool = True

    @property
    def state(self) -> int:
        """Size of what is fed back."""
        return self.projection or self.hidden

    @property
    def gates(self) -> int:
        return self.cell.gates * self.hidden

    def forward(self) -> Cost:
        units = self.rows * self.hidden
        return Cost(
            macs=self.rows * (self.gates * (self.x + self.state) + self.hidden * self.projection),
            elementwise_flops=units * self.cell.per_unit(self.biases),
            transcendentals=units * self.cell.transcendentals,
            comparisons=units if self.cell.relu else 0,
        )

    def backward(self, of_input: bool, of_state: bool, of_weights: bool = True, always: bool = False) -> Cost:
        """Gradients as wanted. ``always``: the kernel makes those of input and initial state in any case."""
        projection = self.rows * self.hidden * self.projection
        by_input, first_state = self.rows * self.gates * self.x, self.batch * self.gates * self.state
        macs = self.rows * self.gates * self.state - first_state + projection
        macs += by_input if of_input else 0
        macs += first_state if of_state else 0
        macs += self.rows * self.gates * (self.x + self.state) + projection if of_weights else 0
        extra = (0 if of_input else by_input) + (0 if of_state else first_state)
        bias = (self.rows - 1) * self.gates if self.biases and of_weights else 0
        units = self.rows * self.hidden
        return Cost(
            macs=macs,
            recompute_macs=extra if always else 0,
            elementwise_flops=units * self.cell.backward + bias,
            transcendentals=units * self.cell.transcendentals_backward,
            comparisons=units if self.cell.relu else 0,
        )


def show(op: OpCall, layers: list[Layer]) -> None:
    """Show the symbols of the first layer."""
    first = layers[0]
    op.let(TB=first.rows, B=first.batch, X=first.x, H=first.hidden, G=first.gates, layers=len(layers))


def dropped(op: OpCall, layers: list[Layer], directions: int) -> Cost:
    """Dropout on the outputs of all layers but the last, in training."""
    if not op.arg("train", False) or not float(op.arg("dropout", 0.0)):
        return Cost()
    count = sum(layer.rows * layer.state for layer in layers[: len(layers) - directions])
    return Cost(elementwise_flops=2 * count, random_draws=count)


def stack(
    cell: Cell, rows: int, batch: int, x: int, hidden: int, projection: int, layers: int, directions: int, biases: bool
) -> list[Layer]:
    """The layers of a network, both directions of a layer side by side."""
    state = projection or hidden
    sizes = [x if i == 0 else directions * state for i in range(layers) for _ in range(directions)]
    return [Layer(cell, rows, batch, size, hidden, projection, biases) for size in sizes]


@rule("aten::mkldnn_rnn_layer", formula=FORWARD)
def mkldnn_layer(op: OpCall) -> Cost:
    """One layer in one direction."""
    layer = _mkldnn(op)
    show(op, [layer])
    return layer.forward()


@rule("aten::mkldnn_rnn_layer_backward", formula=BACKWARD, asks_wanted=True)
def mkldnn_layer_backward(op: OpCall) -> Cost:
    """Gradients of one layer in one direction; the kernel always makes those of input and initial state."""
    layer = _mkldnn(op)
    show(op, [layer])
    return layer.backward(op.wanted(0), op.wanted(5) or op.wanted(6), always=True)


def _mkldnn(op: OpCall) -> Layer:
    rows = math.prod(op.shape("input")[:-1])
    batch = math.prod(op.shape("hx_")[:-1])
    cell = MODES[op.arg("mode", 2)]
    x = op.shape("input")[-1]
    return Layer(cell, rows, batch, x, op.arg("hidden_size", 0), biases=bool(op.arg("has_biases", True)))


def _kernel_layers(op: OpCall) -> tuple[list[Layer], int]:
    hidden, projection, layers = op.arg("hidden_size", 0), op.arg("proj_size", 0), op.arg("num_layers", 1)
    directions = 2 if op.arg("bidirectional", False) else 1
    shape = op.shape("input")
    biases = len(op.tensors("weight")) >= 4 * layers * directions
    rows, batch = math.prod(shape[:-1]), op.shape("hx")[1]
    cell = MODES[op.arg("mode", 2)]
    return stack(cell, rows, batch, shape[-1], hidden, projection, layers, directions, biases), directions


@rule("aten::_cudnn_rnn", "aten::miopen_rnn", formula=FORWARD)
def kernel_forward(op: OpCall) -> Cost:
    """All layers and directions in one kernel; packed sequences have one row per step that exists."""
    layers, directions = _kernel_layers(op)
    show(op, layers)
    return summed(layer.forward() for layer in layers) + dropped(op, layers, directions)


@rule("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", formula=BACKWARD, asks_wanted=True)
def kernel_backward(op: OpCall) -> Cost:
    """Gradients of all layers and directions; inner layers always need that of their input."""
    layers, directions = _kernel_layers(op)
    show(op, layers)
    of_input, of_hidden, of_cell, of_weights = op.arg("output_mask", (True, True, True, True))
    of_state = (of_hidden and op.wanted(1)) or (of_cell and op.wanted(2))
    costs = (
        layer.backward(of_input if i < directions else True, of_state, of_weights, always=True)
        for i, layer in enumerate(layers)
    )
    dropout = dropped(op, layers, directions)
    return summed(costs) + Cost(elementwise_flops=dropout.elementwise_flops)


@rule(
    "aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", "aten::quantized_lstm", "aten::quantized_gru",
    formula=FORWARD,
)  # fmt: skip
def network(op: OpCall) -> Cost:
    """A whole network as one op: sizes come from the input and the initial state."""
    name = op.base.removeprefix("quantized_")
    cell = {"lstm": LSTM, "gru": GRU, "rnn_tanh": TANH, "rnn_relu": RELU}[name]
    x = op.tensor("input" if "input" in op.arguments else "data")
    states = op.tensors("hx")
    directions = 2 if op.arg("bidirectional", False) else 1
    projection = states[0].shape[-1] if len(states) > 1 and states[0].shape != states[1].shape else 0
    layers = stack(
        cell,
        math.prod(x.shape[:-1]),
        states[0].shape[1],
        x.shape[-1],
        states[-1].shape[-1],
        projection,
        op.arg("num_layers", 1),
        directions,
        bool(op.arg("has_biases", True)),
    )
    show(op, layers)
    return summed(layer.forward() for layer in layers) + dropped(op, layers, directions)


def _cell(op: OpCall, cell: Cell) -> Cost:
    """The pointwise part of a cell; its products were dispatched before."""
    units = math.prod(op.out.shape)
    biases = 2 * cell.gates if op.has("input_bias") else 0
    op.let(units=units)
    flops = units * (cell.work + biases)
    return Cost(elementwise_flops=flops, transcendentals=units * cell.transcendentals)


@rule("aten::_thnn_fused_lstm_cell", formula="22 per hidden unit, 30 with bias")
def lstm_cell(op: OpCall) -> Cost:
    """Gates, activations and state update of an LSTM step."""
    return _cell(op, LSTM)


@rule("aten::_thnn_fused_gru_cell", formula="16 per hidden unit, 22 with bias")
def gru_cell(op: OpCall) -> Cost:
    """Gates, activations and state update of a GRU step."""
    return _cell(op, GRU)


@rule("aten::_thnn_fused_lstm_cell_backward_impl", "aten::_thnn_fused_lstm_cell_backward", formula="23 per hidden unit")
def lstm_cell_backward(op: OpCall) -> Cost:
    """Gradients of an LSTM step's gates and cell state; the bias gradient is the sum over the batch."""
    shape = op.shape("cx")
    gates = 4 * shape[-1] if op.arg("has_bias", False) else 0
    rows = math.prod(shape[:-1])
    units = rows * shape[-1]
    return Cost(elementwise_flops=23 * units + max(0, rows - 1) * gates, transcendentals=units)


@rule("aten::_thnn_fused_gru_cell_backward", formula="16 per hidden unit")
def gru_cell_backward(op: OpCall) -> Cost:
    """Gradients of a GRU step's gates and state; the bias gradient is the sum over the batch."""
    shape = op.shape("grad_hy")
    gates = 3 * shape[-1] if op.arg("has_bias", False) else 0
    rows = math.prod(shape[:-1])
    return Cost(elementwise_flops=16 * rows * shape[-1] + max(0, rows - 1) * gates)
