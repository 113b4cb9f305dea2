"""Activation functions and their gradients. Counting convention: docs/cost.md, pointwise."""

from __future__ import annotations

from tensortide.cost.kinds import Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.pointwise import register

SIGMOID = Weights(4, 2, 0, 16)

TABLE: dict[str, Weights] = {
    # negate, exp, add, reciprocal
    "sigmoid": SIGMOID,
    "silu": Weights(5, 2),
    "leaky_relu _prelu_kernel": Weights(2, 0, 1),
    "hardtanh relu6": Weights(2, 0, 2),
    "threshold": Weights(1, 0, 1),
    "softplus": Weights(3, 2, 1),
    "celu": Weights(4, 1, 1),
    "selu": Weights(5, 1, 1),
    "mish": Weights(5, 3, 1),
    "hardswish": Weights(5, 1, 2),
    "hardsigmoid": Weights(4, 1, 2),
    "hardshrink": Weights(2, 0, 2),
    "softshrink": Weights(3, 0, 2),
    "log_sigmoid_forward": Weights(5, 2, 1),
    "rrelu_with_noise rrelu_with_noise_functional": Weights(2, 0, 1),
    # gradients, per element
    "threshold_backward hardshrink_backward softshrink_backward": Weights(1, 0, 1),
    "hardtanh_backward": Weights(2, 0, 2),
    "hardsigmoid_backward": Weights(3, 0, 2),
    "leaky_relu_backward rrelu_with_noise_backward": Weights(2, 0, 1),
    "sigmoid_backward": Weights(3, 0, 0, 14),
    "tanh_backward": Weights(3, 0, 0, 14),
    "silu_backward": Weights(9, 2),
    "mish_backward": Weights(14, 5, 1),
    "hardswish_backward": Weights(4, 0, 2),
    "softplus_backward": Weights(5, 2, 1),
    "elu_backward": Weights(3, 0, 1),
    "log_sigmoid_backward": Weights(6, 1, 1),
}

register(TABLE)


@rule("aten::gelu", formula="5 per output element, 9 in the tanh form")
def gelu(op: OpCall) -> Cost:
    """``x/2 (1 + erf(x/sqrt 2))``, or its tanh approximation (Hendrycks and Gimpel, 2016)."""
    weights = Weights(9, 1) if op.arg("approximate", "none") == "tanh" else Weights(5, 1)
    op.let(E=op.out.numel)
    return elements(op, op.out.numel, weights)


@rule("aten::gelu_backward", formula="11 per output element, 18 in the tanh form")
def gelu_backward(op: OpCall) -> Cost:
    """Gradient of GELU."""
    weights = Weights(18, 1) if op.arg("approximate", "none") == "tanh" else Weights(11, 2)
    return elements(op, op.out.numel, weights)


@rule("aten::elu", formula="4 per output element, 5 if scaled (selu)")
def elu(op: OpCall) -> Cost:
    """``x`` or ``alpha (exp(x) - 1)``; selu is the same times a scale (Klambauer et al., 2017)."""
    flops = 4 if op.arg("scale", 1) == 1 else 5
    op.let(E=op.out.numel)
    return elements(op, op.out.numel, Weights(flops, 1, 1))


@rule("aten::_prelu_kernel_backward", formula="3 per element: gradients of input and weight")
def prelu_backward(op: OpCall) -> Cost:
    """Gradients of input and (per element) of weight."""
    return elements(op, op.tensor("self").numel, Weights(3, 0, 1))


@rule("aten::glu", formula="5 per output element: sigmoid and product")
def glu(op: OpCall) -> Cost:
    """One half times the sigmoid of the other."""
    return elements(op, op.out.numel, Weights(5, 2))


@rule("aten::glu_backward", formula="9 per element of one half: sigmoid 4, two products, sigmoid gradient 3")
def glu_backward(op: OpCall) -> Cost:
    """Gradients of both halves."""
    return elements(op, op.tensor("grad_output").numel, Weights(9, 2))


@rule("aten::glu_jvp", "aten::glu_backward_jvp", formula="12 per element of one half")
def glu_forward_mode(op: OpCall) -> Cost:
    """Forward-mode derivative."""
    return elements(op, op.out.numel, Weights(12, 2))
