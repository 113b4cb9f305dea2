"""Recurrent layers and cells: LSTM, GRU, tanh and ReLU RNN. Counting convention: docs/cost.md, recurrent layers.

LSTM after Hochreiter and Schmidhuber, 1997; GRU after Cho et al., 2014, with the reset gate behind the product.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost, summed
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "recurrent")

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
            kernel_recompute_macs=extra if always else 0,
            elementwise_flops=units * self.cell.backward + bias,
            transcendentals=units * self.cell.transcendentals_backward,
            comparisons=units if self.cell.relu else 0,
        )


class Network(NamedTuple):
    """Layers, both directions of one side by side, as an op describes them."""

    layers: list[Layer]
    directions: int

    @classmethod
    def of(
        cls, op: OpCall, cell: Cell, rows: int, batch: int, x: int, hidden: int, projection: int, biases: bool
    ) -> Network:
        """The network of ``cell`` cells; shows the symbols of its first layer."""
        directions = 2 if op.arg("bidirectional", False) else 1
        inner = directions * (projection or hidden)
        sizes = [x if i == 0 else inner for i in range(op.arg("num_layers", 1)) for _ in range(directions)]
        layers = [Layer(cell, rows, batch, size, hidden, projection, biases) for size in sizes]
        _show(op, layers)
        return cls(layers, directions)

    def dropped(self, op: OpCall) -> Cost:
        """Dropout on the outputs of all layers but the last, in training."""
        if not op.arg("train", False) or not float(op.arg("dropout", 0.0)):
            return Cost()
        count = sum(layer.rows * layer.state for layer in self.layers[: len(self.layers) - self.directions])
        return Cost(elementwise_flops=2 * count, random_draws=count)


def _show(op: OpCall, layers: list[Layer]) -> None:
    first = layers[0]
    op.let(TB=first.rows, B=first.batch, X=first.x, H=first.hidden, G=first.gates, layers=len(layers))


@aten("mkldnn_rnn_layer", FORWARD, meaning="One layer in one direction.")
@aten("mkldnn_rnn_layer_backward", BACKWARD, asks_wanted=True)
def mkldnn_layer(op: OpCall) -> Cost:
    """Gradients of one layer in one direction; the kernel always makes those of input and initial state."""
    *steps, x = op.shape("input")
    batch = math.prod(op.shape("hx_")[:-1])
    biases = bool(op.arg("has_biases", True))
    layer = Layer(MODES[op.arg("mode", 2)], math.prod(steps), batch, x, op.arg("hidden_size", 0), biases=biases)
    _show(op, [layer])
    if "backward" not in op.base:
        return layer.forward()
    return layer.backward(op.wanted(0), op.wanted(5) or op.wanted(6), always=True)


def _kernel(op: OpCall) -> Network:
    """The network of a kernel; packed sequences have one row per step that exists."""
    *steps, x = op.shape("input")
    matrices = 4 * op.arg("num_layers", 1) * (2 if op.arg("bidirectional", False) else 1)
    hidden, projection, biases = op.arg("hidden_size", 0), op.arg("proj_size", 0), len(op.tensors("weight")) >= matrices
    return Network.of(op, MODES[op.arg("mode", 2)], math.prod(steps), op.shape("hx")[1], x, hidden, projection, biases)


@aten("_cudnn_rnn miopen_rnn", FORWARD)
def kernel_forward(op: OpCall) -> Cost:
    """All layers and directions in one kernel; packed sequences have one row per step that exists."""
    network = _kernel(op)
    return summed(layer.forward() for layer in network.layers) + network.dropped(op)


@aten("_cudnn_rnn_backward miopen_rnn_backward", BACKWARD, asks_wanted=True)
def kernel_backward(op: OpCall) -> Cost:
    """Gradients of all layers and directions; inner layers always need that of their input."""
    network = _kernel(op)
    of_input, of_hidden, of_cell, of_weights = op.arg("output_mask", (True, True, True, True))
    of_state = (of_hidden and op.wanted(1)) or (of_cell and op.wanted(2))
    costs = (
        layer.backward(of_input if i < network.directions else True, of_state, of_weights, always=True)
        for i, layer in enumerate(network.layers)
    )
    return summed(costs) + Cost(elementwise_flops=network.dropped(op).elementwise_flops)


CELLS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": TANH, "rnn_relu": RELU}


@aten("lstm gru rnn_tanh rnn_relu quantized_lstm quantized_gru", FORWARD)
def whole(op: OpCall) -> Cost:
    """A whole network as one op: sizes come from the input and the initial state."""
    cell, states = CELLS[op.base.removeprefix("quantized_")], op.tensors("hx")
    *steps, x = op.first("input", "data").shape
    projection = states[0].shape[-1] if len(states) > 1 and states[0].shape != states[1].shape else 0
    batch, hidden, biases = states[0].shape[1], states[-1].shape[-1], bool(op.arg("has_biases", True))
    network = Network.of(op, cell, math.prod(steps), batch, x, hidden, projection, biases)
    return summed(layer.forward() for layer in network.layers) + network.dropped(op)


# -- the pointwise part of a cell; its products were dispatched before ------------------------------------


@aten(
    "_thnn_fused_lstm_cell",
    "22 per hidden unit, 30 with bias",
    meaning="Gates, activations and state update of an LSTM step.",
)
@aten("_thnn_fused_gru_cell", "16 per hidden unit, 22 with bias")
def cell_forward(op: OpCall) -> Cost:
    """Gates, activations and state update of a GRU step."""
    cell, units = LSTM if "lstm" in op.base else GRU, math.prod(op.out.shape)
    op.let(units=units)
    flops = units * cell.per_unit(op.has("input_bias"))
    return Cost(elementwise_flops=flops, transcendentals=units * cell.transcendentals)


@aten(
    "_thnn_fused_lstm_cell_backward_impl _thnn_fused_lstm_cell_backward",
    "23 per hidden unit",
    meaning="Gradients of an LSTM step's gates and cell state; the bias gradient is the sum over the batch.",
)
@aten("_thnn_fused_gru_cell_backward", "16 per hidden unit")
def cell_backward(op: OpCall) -> Cost:
    """Gradients of a GRU step's gates and state; the bias gradient is the sum over the batch."""
    lstm = "lstm" in op.base
    *outer, hidden = op.shape("cx" if lstm else "grad_hy")
    rows, gates = math.prod(outer), (4 if lstm else 3) * hidden * bool(op.arg("has_bias", False))
    units = rows * hidden
    flops = (23 if lstm else 16) * units + max(0, rows - 1) * gates
    return Cost(elementwise_flops=flops, transcendentals=units * lstm)
