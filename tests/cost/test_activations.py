"""Activations, losses and gradients, one number at a time: PyTorch's value, by the operations that are charged."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tensortide.cost import Cost, count
from tests.cost.probe import Number, Tally, assert_counted, recorded, tally, total

VALUES = (-4.0, -1.3, -0.2, 0.4, 2.0, 7.0)
OTHERS = (0.3, -1.0, 0.1, 0.9, 4.5, 6.5)
KAPPA, BETA = 0.044715, math.sqrt(2 / math.pi)
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805


def where(x: Number, above: Number, below: Number) -> Number:
    """``above`` where x is positive, else ``below``: one comparison."""
    return (above if x.value > 0 else below).selected(lambda value: value)


def within(x: Number, low: float, high: float) -> Number:
    return x.selected(lambda value: max(value, low)).selected(lambda value: min(value, high))


def exp(x: Number) -> Number:
    return x.function(math.exp)


def tanh(x: Number) -> Number:
    return x.function(math.tanh)


def sigmoid(x: Number) -> Number:
    return Number(1) / (exp(x * -1) + 1)


def softplus(x: Number) -> Number:
    return exp(x).function(math.log1p).selected(lambda value: value)


def gelu(x: Number) -> Number:
    return x * 0.5 * ((x * math.sqrt(0.5)).function(math.erf) + 1)


def gelu_tanh(x: Number) -> Number:
    return x * 0.5 * (tanh((x * x * x * KAPPA + x) * BETA) + 1)


FORWARD: dict[str, tuple[Callable[..., Any], Callable[[Number], Number]]] = {
    "relu": (torch.relu, lambda x: x.selected(lambda value: max(value, 0.0))),
    "sigmoid": (torch.sigmoid, sigmoid),
    "silu": (F.silu, lambda x: x * sigmoid(x)),
    "leaky_relu": (F.leaky_relu, lambda x: where(x, x, x * 0.01)),
    "relu6": (F.relu6, lambda x: within(x, 0, 6)),
    "softplus": (F.softplus, softplus),
    "elu": (F.elu, lambda x: where(x, x, (exp(x) - 1) * 1.0)),
    "celu": (F.celu, lambda x: where(x, x, (exp(x) - 1) * 1.0)),
    "selu": (F.selu, lambda x: where(x, x, (exp(x) - 1) * ALPHA) * SCALE),
    "mish": (F.mish, lambda x: x * tanh(softplus(x))),
    "hardswish": (F.hardswish, lambda x: x * (within(x + 3.0, 0, 6) / 6.0)),
    "hardsigmoid": (F.hardsigmoid, lambda x: within(x + 3.0, 0, 6) / 6.0),
    "gelu": (F.gelu, gelu),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), gelu_tanh),
}


def counted(function: Callable[..., Any], *arguments: Any) -> tuple[torch.Tensor, Cost]:
    """What ``function`` gives and what it costs."""
    results: list[torch.Tensor] = []
    graph = recorded(lambda: results.append(function(*arguments)))
    return results[0].detach(), count(graph).total.cost


def assert_agrees(found: tuple[torch.Tensor, Cost], by_hand: list[Number], done: Tally) -> None:
    values, cost = found
    assert values.flatten().tolist() == pytest.approx([number.value for number in by_hand], rel=1e-4, abs=1e-5)
    assert_counted(cost, done)


@pytest.mark.parametrize(("function", "by_hand"), FORWARD.values(), ids=FORWARD.keys())
def test_activations(function: Callable[..., Any], by_hand: Callable[[Number], Number]) -> None:
    with tally() as done:
        made = [by_hand(Number(value)) for value in VALUES]
    assert_agrees(counted(function, torch.tensor(VALUES)), made, done)


# -- gradients --------------------------------------------------------------------------------------


def silu_backward(g: Number, x: Number) -> Number:
    s = sigmoid(x)
    return g * s * (x * (1 - s) + 1)


def gelu_backward(g: Number, x: Number) -> Number:
    below = ((x * math.sqrt(0.5)).function(math.erf) + 1) * 0.5
    density = exp(x * x * -0.5) * math.sqrt(0.5 / math.pi)
    return g * (below + x * density)


def gelu_tanh_backward(g: Number, x: Number) -> Number:
    square = x * x
    curve = tanh((square * x * KAPPA + x) * BETA)
    left, right = x * 0.5, curve + 1
    inner = (square * (3 * KAPPA) + 1) * BETA
    return g * (right * 0.5 + left * (1 - curve * curve) * inner)


def mish_backward(g: Number, x: Number) -> Number:
    s, t = sigmoid(x), tanh(softplus(x))
    return g * (t + x * s * (1 - t * t))


def softplus_backward(g: Number, x: Number) -> Number:
    z = exp(x)
    return (g * (z / (z + 1))).selected(lambda value: value)


BACKWARD: dict[str, Callable[[Number, Number], Number]] = {
    "silu": silu_backward,
    "gelu": gelu_backward,
    "gelu tanh": gelu_tanh_backward,
    "mish": mish_backward,
    "softplus": softplus_backward,
    "relu": lambda g, x: where(x, g, Number(0)),
    "leaky_relu": lambda g, x: where(x, g, g * 0.01),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_of_activations(name: str) -> None:
    x, g = torch.tensor(VALUES, requires_grad=True), torch.tensor(OTHERS)
    y = FORWARD[name][0](x)
    with tally() as done:
        made = [BACKWARD[name](Number(b), Number(a)) for a, b in zip(VALUES, OTHERS, strict=True)]
    assert_agrees(counted(lambda: torch.autograd.grad(y, x, g, retain_graph=True)[0]), made, done)


def test_gradients_by_the_result() -> None:
    """The gradients of sigmoid and tanh are made from their results."""
    for function, by_hand in (
        (torch.sigmoid, lambda g, y: g * (1 - y) * y),
        (torch.tanh, lambda g, y: g * (1 - y * y)),
    ):
        x, g = torch.tensor(VALUES, requires_grad=True), torch.tensor(OTHERS)
        y = function(x)
        with tally() as done:
            made = [by_hand(Number(b), Number(a)) for a, b in zip(y.tolist(), OTHERS, strict=True)]
        assert_agrees(counted(lambda y=y, x=x, g=g: torch.autograd.grad(y, x, g, retain_graph=True)[0]), made, done)


# -- losses -----------------------------------------------------------------------------------------


def square(x: Number) -> Number:
    return x * x


def absolute(x: Number) -> Number:
    return x.selected(abs)


def huber(x: Number, y: Number, beta: float | None = None) -> Number:
    """Squares below a limit, straight above it; the smooth L1 loss divides the square by the limit."""
    z = absolute(x - y)
    square = z * z * 0.5 if beta is None else z * z * 0.5 / beta
    return (square if z.value < (beta or 1.0) else Number(z.value - 0.5 * (beta or 1.0))).selected(lambda value: value)


def cross_entropy(p: Number, y: Number) -> Number:
    yes = p.function(math.log).selected(lambda value: max(value, -100.0))
    no = (1 - p).function(math.log).selected(lambda value: max(value, -100.0))
    return (y * yes + (1 - y) * no) * -1


LOSSES: dict[str, tuple[Callable[..., Any], Callable[[Number, Number], Number]]] = {
    "mse": (F.mse_loss, lambda x, y: square(x - y)),
    "huber": (F.huber_loss, huber),
    "smooth_l1": (functools.partial(F.smooth_l1_loss, beta=0.7), lambda x, y: huber(x, y, 0.7)),
    "soft_margin": (F.soft_margin_loss, lambda x, y: exp(x * y * -1).function(math.log1p)),
    "binary_cross_entropy": (F.binary_cross_entropy, cross_entropy),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    function, by_hand = LOSSES[name]
    x, y = torch.rand(5), torch.rand(5)
    with tally() as done:
        made = [by_hand(Number(a), Number(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert_agrees(counted(lambda: function(x, y, reduction="none")), made, done)
    with_sum = counted(lambda: function(x, y, reduction="sum"))[1]
    with tally() as added:
        total(made)
    assert with_sum.elementwise_flops == done.flops + added.flops
    assert counted(lambda: function(x, y))[1].elementwise_flops == done.flops + added.flops + 1
