"""Ops of ATen that a dispatcher takes apart before they run, as programs and other recordings call them: whole.

Each costs what its parts cost. Views among them cost nothing where their result lies in an argument.
"""

from __future__ import annotations

import math

from tensortide.cost.access import unless_view
from tensortide.cost.families import elementwise, move
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.cost.rules.normalization import layer
from tensortide.cost.rules.recurrent import GRU, LSTM, RELU, TANH, Layer
from tensortide.dtypes import Kind, kind_of

aten = Vocabulary("aten", "normalization")

MEAN = 1
CELLS = {"lstm_cell": LSTM, "gru_cell": GRU, "rnn_tanh_cell": TANH, "rnn_relu_cell": RELU}
COPIES = (
    "reshape reshape_as flatten ravel to type_as float half double bfloat16 int long bool cpu cuda resolve_conj "
    "resolve_neg hstack vstack dstack column_stack row_stack concat concatenate pad meshgrid broadcast_tensors "
    "cartesian_prod one_hot _autocast_to_full_precision _autocast_to_reduced_precision"
)


aten.rows({
    COPIES: move("A copy, or a view where that will do.", bytes=unless_view),
    "square": elementwise(1),
    "diff": elementwise(1, family="scan"),
})  # fmt: skip


@aten("instance_norm", "R (5n + 2 + n (weight) + n (bias)), R = N C; by running statistics 2n + 5")
def instance_norm(op: OpCall) -> Cost:
    """Normalization of each channel of each sample (Ulyanov et al., 2016)."""
    shape = op.shape("input")
    total, rows = op.tensor("input").numel, math.prod(shape[:2])
    op.let(R=rows, n=total // max(1, rows))
    if not op.arg("use_input_stats", True):
        return Cost(elementwise_flops=2 * total + 5 * rows, transcendentals=rows)
    made = layer(rows, total // max(1, rows), total * op.has("weight"), total * op.has("bias"))
    return made + Cost(elementwise_flops=7 * rows * op.has("running_mean"))


@aten("cross_entropy_loss", "R (5n - 1) log-softmax + N: select, negate, mean (2 N with class weights)", family="loss")
def cross_entropy(op: OpCall) -> Cost | None:
    """Log-softmax over the classes and the negative log likelihood of one class per row; other forms by their parts."""
    if op.arg("label_smoothing", 0.0):
        return None
    x, target = op.tensor("self"), op.tensor("target")
    n = x.shape[1] if len(x.shape) > 1 else x.shape[0]
    rows = x.numel // max(1, n)
    op.let(R=rows, n=n)
    softmax = Cost(elementwise_flops=rows * (5 * n - 1), transcendentals=rows * (n + 1), comparisons=rows * (n - 1))
    if target.shape == x.shape and kind_of(target.dtype) is not Kind.INTEGER:
        return None
    return softmax + Cost(elementwise_flops=rows * (1 + op.has("weight")))


@aten(" ".join(CELLS), "B G (X + H) MACs, G = 4H (LSTM), 3H (GRU), H (RNN)", family="recurrent")
def cell(op: OpCall) -> Cost:
    """One step of a recurrent layer."""
    batch, x = (1, *op.shape("input"))[-2:]
    hidden = op.shape("w_hh")[1]
    op.let(B=batch, X=x, H=hidden)
    return Layer(CELLS[op.base], batch, batch, x, hidden, biases=op.has("b_ih")).forward()


@aten("bilinear", "R Oo I2 (I1 + 1) MACs (+ R Oo add of the bias)", family="contraction")
def bilinear(op: OpCall) -> Cost:
    """The first input and the weight are contracted, then the second."""
    outputs, first, second = op.shape("weight")
    rows = op.tensor("input1").numel // max(1, first)
    op.let(R=rows, I1=first, I2=second, Oo=outputs)
    return Cost(macs=rows * outputs * second * (first + 1), elementwise_flops=rows * outputs * op.has("bias"))
