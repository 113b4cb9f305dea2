"""Fused optimizer steps and gradient scaling. Counting convention: docs/cost.md, optimizers.

Per parameter element the same as the single-tensor and ``_foreach_`` steps, whose parts are counted as they run; the
few scalar operations of bias correction are left out.
"""

from __future__ import annotations

from tensortide.cost.access import Bytes, size
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "optimizer")


def _bytes(op: OpCall) -> Bytes:
    """Everything is read once; parameters and state are written, gradients only when they are unscaled."""
    names = ["self", "exp_avgs", "exp_avg_sqs", "state_sums", "momentum_buffer_list"]
    names += ["max_exp_avg_sqs"] * bool(op.arg("amsgrad", False))
    states = [t for name in names for t in op.tensors(name)]
    gradients = op.tensors("grads")
    read = op.tensors("self") if op.arg("is_first_step", False) else states
    others = [t for name in ("state_steps", "lr", "grad_scale", "found_inf") for t in op.tensors(name)]
    return Bytes(size([*read, *gradients, *others]), size([*states, *(gradients if op.has("grad_scale") else ())]))


@aten(
    "_fused_adam",
    "13 per element, + 2 weight decay, + 1 amsgrad",
    meaning="First moment 3, second moment 4, denominator 3, update 3 (Kingma and Ba, 2014).",
    bytes=_bytes,
)
@aten(
    "_fused_adamw",
    "13 per element, + 1 weight decay, + 1 amsgrad",
    meaning="Adam with decoupled weight decay (Loshchilov and Hutter, 2017).",
    bytes=_bytes,
)
@aten(
    "_fused_sgd",
    "2 per element, + 2 weight decay, + 2 momentum (+ 1 dampening), + 2 Nesterov",
    meaning="Gradient descent; the first step of momentum only copies the gradient.",
    bytes=_bytes,
)
@aten(
    "_fused_adagrad",
    "7 per element, + 2 weight decay",
    meaning="Sum of squares 2, root and eps 2, update 3 (Duchi et al., 2011).",
    bytes=_bytes,
)
def step(op: OpCall) -> Cost:
    """A step of an optimizer."""
    name = op.base.removeprefix("_fused_").removesuffix("_")
    flops = {"adam": 13, "adamw": 13, "adagrad": 7, "sgd": 2}[name]
    if float(op.arg("weight_decay", 0.0)):
        flops += 1 if name == "adamw" else 2
    if float(op.arg("momentum", 0.0)):
        flops += 0 if op.arg("is_first_step", False) else 2 + bool(op.arg("dampening", 0.0))
        flops += 2 * bool(op.arg("nesterov", False))
    flops += bool(op.arg("amsgrad", False)) + bool(op.arg("maximize", False)) + op.has("grad_scale")
    count = sum(tensor.numel for tensor in op.tensors("self"))
    op.let(parameters=count, per_element=flops)
    return Cost(elementwise_flops=count * flops, transcendentals=0 if name == "sgd" else 2 * count)


@aten("_amp_foreach_non_finite_check_and_unscale", "2 per element: a check and a product")
def unscale(op: OpCall) -> Cost:
    """Gradients checked for overflow and divided by the loss scale."""
    count = sum(tensor.numel for tensor in op.tensors("self"))
    return Cost(elementwise_flops=2 * count, comparisons=count)


@aten("_amp_update_scale", "3")
def update_scale(_: OpCall) -> Cost:
    """The loss scale grown, shrunk or kept."""
    return Cost(elementwise_flops=3, comparisons=2)
