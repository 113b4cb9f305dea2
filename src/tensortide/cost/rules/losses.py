"""Losses and their gradients. Counting convention: docs/cost.md, losses.

A loss costs its work per element, then for a mean or sum the reduction: E - 1 adds and, for the mean, a division.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, reads, size, written
from tensortide.cost.families import elementwise
from tensortide.cost.kinds import Kind, Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, rule

aten = Vocabulary("aten", "loss")

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


@aten(
    " ".join(FORWARD),
    "per element mse 2, smooth L1 6, huber 5, soft margin 4, cross entropy 10; + the reduction",
    meaning="A loss that compares element by element.",
)
@aten(
    " ".join(BACKWARD),
    "per element mse 2, smooth L1 5, huber 4, soft margin 6, cross entropy 6 (+ 1 with weight or no reduction)",
)
def pointwise_loss(op: OpCall) -> Cost:
    """The gradient of a loss, with the factor of the reduction folded into the incoming gradient."""
    weights, count, reduction = (FORWARD | BACKWARD)[op.base], op.tensor("self").numel, op.arg("reduction", MEAN)
    flops, mean = weights.flops + op.has("weight"), op.base in FORWARD and reduction == MEAN
    if op.base in FORWARD:
        flops += 4 * op.has("pos_weight")
    elif op.base == "mse_loss_backward":
        flops += reduction == NONE
    op.let(E=count, per_element=flops)
    return Cost(
        elementwise_flops=flops * count + (count - 1 + mean if op.base in FORWARD and reduction != NONE else 0),
        transcendentals=weights.transcendentals * count + mean,
        comparisons=weights.comparisons * count,
    )


def _nll_bytes(op: OpCall) -> Bytes:
    """One log probability per row is read."""
    picked = op.tensor("target").numel * op.tensor("self").itemsize
    return Bytes(picked + size([*op.tensors("target"), *op.tensors("weight")]), written(op))


@aten(
    "nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d",
    "N: select, negate, mean (2 N with class weights)",
    meaning="Negative log likelihood of one class per row: N rows.",
    bytes=_nll_bytes,
)
@aten("nll_loss_backward nll_loss2d_backward", "N", bytes=reads("grad_output", "target", "weight", "total_weight"))
def nll(op: OpCall) -> Cost:
    """One element per row gets a gradient, the rest zero."""
    rows = op.tensor("target").numel
    op.let(N=rows)
    return Cost(elementwise_flops=rows * (1 + op.has("weight")))


aten.rows({
    "multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward "
    "multilabel_margin_loss_backward": elementwise(
        (4, 0, 1), of="self", kind=Kind.REAL, bound="bound: every class has a margin", family="loss"
    )
})  # fmt: skip


@aten(
    "_ctc_loss _ctc_loss_backward _cudnn_ctc_loss miopen_ctc_loss",
    "7 per time step and place in the extended target (bound)",
)
def ctc_loss(op: OpCall) -> Cost:
    """Forward (or backward) variables of connectionist temporal classification (Graves et al., 2006)."""
    shape, lengths, longest = op.shape("log_probs"), op.arg("target_lengths"), op.shape("targets")[-1]
    if isinstance(lengths, tuple):
        longest = max(lengths, default=longest)
    backward = op.base == "_ctc_loss_backward"
    places = shape[0] * (shape[1] if len(shape) > 2 else 1) * (2 * longest + 1) * (1 + backward)
    return Cost(
        elementwise_flops=7 * places + 2 * math.prod(shape) * backward,
        transcendentals=4 * places,
        exact=False,
        reason="bound: longest target, log-sum-exp of three",
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
