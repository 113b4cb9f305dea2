"""Fused optimizer steps and gradient scaling. Counting convention: docs/cost.md, optimizers.

Per parameter element the same as the single-tensor and ``_foreach_`` steps, whose parts are counted as they run; the
few scalar operations of bias correction are left out.
"""

from __future__ import annotations

from tensortide.cost.access import Bytes, size
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


def _step(op: OpCall, flops: int, transcendentals: int) -> Cost:
    count = sum(tensor.numel for tensor in op.tensors("self"))
    flops += bool(op.arg("maximize", False)) + op.has("grad_scale")
    op.let(parameters=count, per_element=flops)
    return Cost(elementwise_flops=count * flops, transcendentals=count * transcendentals)


def _bytes(op: OpCall) -> Bytes:
    """Everything is read once; parameters and state are written, gradients only when they are unscaled."""
    names = ("self", "exp_avgs", "exp_avg_sqs", "state_sums", "momentum_buffer_list")
    states = [t for name in names for t in op.tensors(name)]
    if op.arg("amsgrad", False):
        states += op.tensors("max_exp_avg_sqs")
    gradients = list(op.tensors("grads"))
    read = list(states) if not op.arg("is_first_step", False) else list(op.tensors("self"))
    others = [t for name in ("state_steps", "lr", "grad_scale", "found_inf") for t in op.tensors(name)]
    return Bytes(size([*read, *gradients, *others]), size([*states, *(gradients if op.has("grad_scale") else [])]))


@rule("aten::_fused_adam", formula="13 per element, + 2 weight decay, + 1 amsgrad", bytes=_bytes)
def adam(op: OpCall) -> Cost:
    """First moment 3, second moment 4, denominator 3, update 3 (Kingma and Ba, 2014)."""
    decay = 2 if float(op.arg("weight_decay", 0.0)) else 0
    return _step(op, 13 + decay + bool(op.arg("amsgrad", False)), 2)


@rule("aten::_fused_adamw", formula="13 per element, + 1 weight decay, + 1 amsgrad", bytes=_bytes)
def adamw(op: OpCall) -> Cost:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017)."""
    decay = 1 if float(op.arg("weight_decay", 0.0)) else 0
    return _step(op, 13 + decay + bool(op.arg("amsgrad", False)), 2)


@rule(
    "aten::_fused_sgd",
    formula="2 per element, + 2 weight decay, + 2 momentum (+ 1 dampening), + 2 Nesterov",
    bytes=_bytes,
)
def sgd(op: OpCall) -> Cost:
    """Gradient descent; the first step of momentum only copies the gradient."""
    flops = 2 + (2 if float(op.arg("weight_decay", 0.0)) else 0)
    if float(op.arg("momentum", 0.0)):
        if not op.arg("is_first_step", False):
            flops += 2 + bool(op.arg("dampening", 0.0))
        flops += 2 * bool(op.arg("nesterov", False))
    return _step(op, flops, 0)


@rule("aten::_fused_adagrad", formula="7 per element, + 2 weight decay", bytes=_bytes)
def adagrad(op: OpCall) -> Cost:
    """Sum of squares 2, root and eps 2, update 3 (Duchi et al., 2011)."""
    return _step(op, 7 + (2 if float(op.arg("weight_decay", 0.0)) else 0), 2)


@rule(
    "aten::_amp_foreach_non_finite_check_and_unscale",
    formula="2 per element: a check and a product",
)
def unscale(op: OpCall) -> Cost:
    """Gradients checked for overflow and divided by the loss scale."""
    count = sum(tensor.numel for tensor in op.tensors("self"))
    return Cost(elementwise_flops=2 * count, comparisons=count)


@rule("aten::_amp_update_scale", formula="3")
def update_scale(op: OpCall) -> Cost:
    """The loss scale grown, shrunk or kept."""
    del op
    return Cost(elementwise_flops=3, comparisons=2)
