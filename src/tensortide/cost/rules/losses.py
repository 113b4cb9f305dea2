"""Losses and their gradients. Counting convention: docs/cost.md, losses.

A loss costs its work per element, then for a mean or sum the reduction: E - 1 adds and, for the mean, a division.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, reads, size, written
from tensortide.cost.kinds import Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

NONE, MEAN = 0, 1
GRADIENTS = ("input", "linear_weight", "linear_bias")

FORWARD = {
    "mse_loss": Weights(2),
    "smooth_l1_loss": Weights(6, 1, 2),
    "huber_loss": Weights(5, 0, 2),
    "soft_margin_loss": Weights(4, 2),
    "binary_cross_entropy": Weights(10, 2, 2),
    "binary_cross_entropy_with_logits": Weights(10, 2, 2),
}
BACKWARD = {
    "mse_loss_backward": Weights(2),
    "smooth_l1_loss_backward": Weights(5, 1, 2),
    "huber_loss_backward": Weights(4, 0, 2),
    "soft_margin_loss_backward": Weights(6, 2),
    "binary_cross_entropy_backward": Weights(6, 1, 1),
}


def _reduced(op: OpCall, weights: Weights, count: int) -> Cost:
    reduction = op.arg("reduction", MEAN)
    extra = 0 if reduction == NONE else count - 1 + (reduction == MEAN)
    flops = weights.flops + op.has("weight") + (4 if op.has("pos_weight") else 0)
    op.let(E=count, per_element=flops)
    return Cost(
        elementwise_flops=flops * count + extra,
        transcendentals=weights.transcendentals * count + int(reduction == MEAN),
        comparisons=weights.comparisons * count,
    )


@rule(
    *(f"aten::{name}" for name in FORWARD),
    formula="per element mse 2, smooth L1 6, huber 5, soft margin 4, cross entropy 10; + the reduction",
)
def pointwise_loss(op: OpCall) -> Cost:
    """A loss that compares element by element."""
    return _reduced(op, FORWARD[op.base], op.tensor("self").numel)


@rule(
    *(f"aten::{name}" for name in BACKWARD),
    formula="per element mse 2, smooth L1 5, huber 4, soft margin 6, cross entropy 6 (+ 1 with weight or no reduction)",
)
def pointwise_loss_backward(op: OpCall) -> Cost:
    """The gradient of a loss, with the factor of the reduction folded into the incoming gradient."""
    weights = BACKWARD[op.base]
    count = op.tensor("self").numel
    extra = int(op.has("weight")) + int(op.base.startswith("mse") and op.arg("reduction", MEAN) == NONE)
    op.let(E=count, per_element=weights.flops + extra)
    return Cost(
        elementwise_flops=(weights.flops + extra) * count,
        transcendentals=weights.transcendentals * count,
        comparisons=weights.comparisons * count,
    )


def _nll_bytes(op: OpCall) -> Bytes:
    """One log probability per row is read."""
    picked = op.tensor("target").numel * op.tensor("self").itemsize
    return Bytes(picked + size([*op.tensors("target"), *op.tensors("weight")]), written(op))


@rule(
    "aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::nll_loss", "aten::nll_loss2d",
    formula="N: select, negate, mean (2 N with class weights)", bytes=_nll_bytes,
)  # fmt: skip
def nll(op: OpCall) -> Cost:
    """Negative log likelihood of one class per row: N rows."""
    rows = op.tensor("target").numel
    op.let(N=rows)
    return Cost(elementwise_flops=rows * (2 if op.has("weight") else 1))


@rule(
    "aten::nll_loss_backward", "aten::nll_loss2d_backward", formula="N",
    bytes=reads("grad_output", "target", "weight", "total_weight"),
)  # fmt: skip
def nll_backward(op: OpCall) -> Cost:
    """One element per row gets a gradient, the rest zero."""
    rows = op.tensor("target").numel
    op.let(N=rows)
    return Cost(elementwise_flops=rows * (2 if op.has("weight") else 1))


@rule(
    "aten::multi_margin_loss", "aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_forward",
    "aten::multilabel_margin_loss_backward",
    formula="4 per element (bound)",
)  # fmt: skip
def margin_loss(op: OpCall) -> Cost:
    """Margins of every class to the right one."""
    count = op.tensor("self").numel
    return Cost(elementwise_flops=4 * count, comparisons=count, exact=False, reason="bound: every class has a margin")


@rule(
    "aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss",
    formula="7 per time step and place in the extended target (bound)",
)  # fmt: skip
def ctc_loss(op: OpCall) -> Cost:
    """Forward (or backward) variables of connectionist temporal classification (Graves et al., 2006)."""
    shape = op.shape("log_probs")
    time, batch = shape[0], shape[1] if len(shape) > 2 else 1
    lengths = op.arg("target_lengths")
    longest = op.shape("targets")[-1]
    if isinstance(lengths, tuple):
        longest = max(lengths, default=longest)
    places = time * batch * (2 * longest + 1)
    passes = 2 if op.base == "_ctc_loss_backward" else 1
    extra = math.prod(shape) * 2 if passes == 2 else 0
    reason = "bound: longest target, log-sum-exp of three"
    return Cost(
        elementwise_flops=7 * passes * places + extra, transcendentals=4 * passes * places, exact=False, reason=reason
    )


@rule(
    "torch_nn::_linear_cross_entropy_batch_chunked",
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction",
    formula="R n k MACs (+ as much per gradient made at once) + log-softmax 5n - 1 per row + N (backward R (4n - 1))",
)
def linear_cross_entropy(op: OpCall) -> Cost:
    """A linear layer and its cross entropy in chunks that keep no logits; a scalar loss makes its gradients at once."""
    x, (n, k) = op.tensor("input"), op.shape("linear_weight")
    rows = x.numel // max(1, k)
    op.let(R=rows, n=n, k=k)
    by_input, by_weight, by_bias = (op.arg(f"compute_{name}_grad", False) for name in GRADIENTS)
    flops = rows * (5 * n - 1) + rows + (rows * n if op.has("linear_bias") else 0)
    if by_input or by_weight or by_bias:
        flops += rows * (4 * n - 1) + rows + ((rows - 1) * n if by_bias else 0)
    return Cost(
        macs=rows * n * k * (1 + by_input + by_weight),
        elementwise_flops=flops,
        transcendentals=rows * (n + 1),
        comparisons=rows * (n - 1),
    )
