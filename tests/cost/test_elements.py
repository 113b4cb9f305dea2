"""Element work, normalization, reductions, sorting and pooling against numbers that count what is done with them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.cost.probe import Number, assert_counted, cost_of, cost_of_call, largest, numbers, tally, tensor, total

ROWS, N = 3, 5


def softmax(row: list[Number]) -> list[Number]:
    top = largest(row)
    powers = [(x - top).function(math.exp) for x in row]
    below = total(powers)
    return [p / below for p in powers]


def log_softmax(row: list[Number]) -> list[Number]:
    top = largest(row)
    moved = [x - top for x in row]
    below = total([x.function(math.exp) for x in moved]).function(math.log)
    return [x - below for x in moved]


def layer_norm(row: list[Number], weight: list[Number] | None, bias: list[Number] | None) -> list[Number]:
    mean = total(row) / len(row)
    centred = [x - mean for x in row]
    variance = total([x * x for x in centred]) / len(row)
    scale = (variance + 1e-5).function(lambda v: v**-0.5)
    out = [x * scale for x in centred]
    out = [x * w for x, w in zip(out, weight, strict=True)] if weight else out
    return [x + b for x, b in zip(out, bias, strict=True)] if bias else out


def rms_norm(row: list[Number], weight: list[Number]) -> list[Number]:
    mean = total([x * x for x in row]) / len(row)
    scale = (mean + 1e-5).function(lambda v: v**-0.5)
    return [x * scale * w for x, w in zip(row, weight, strict=True)]


def layer_norm_backward(grad: list[Number], normal: list[Number], scale: Number, weight: list[Number]) -> list[Number]:
    """Gradient of the input; the normalized input is made again from the input: 2 per element."""
    normal = [(x - 0.0) * scale for x in normal]
    scaled = [g * w for g, w in zip(grad, weight, strict=True)]
    first = total(scaled) / len(grad)
    second = total([g * x for g, x in zip(scaled, normal, strict=True)]) / len(grad)
    return [(g - first - x * second) * scale for g, x in zip(scaled, normal, strict=True)]


def logsumexp(row: list[Number]) -> Number:
    top = largest(row)
    return total([(x - top).function(math.exp) for x in row]).function(math.log) + top


def variance(row: list[Number]) -> Number:
    mean = total(row) / len(row)
    return total([square(x - mean) for x in row]) / len(row)


def square(x: Number) -> Number:
    return x * x


BY_HAND: dict[str, tuple[Any, Any]] = {
    "softmax": (lambda x: torch.softmax(x, -1), softmax),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), log_softmax),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), logsumexp),
    "sum": (lambda x: x.sum(-1), total),
    "amax": (lambda x: x.amax(-1), largest),
    "mean": (lambda x: x.mean(-1), lambda row: total(row) / len(row)),
    "var": (lambda x: x.var(-1, correction=0), variance),
    "std": (lambda x: x.std(-1, correction=0), lambda row: variance(row).function(math.sqrt)),
    "norm": (lambda x: x.norm(dim=-1), lambda row: total([square(x) for x in row]).function(math.sqrt)),
    "layer_norm": (lambda x: F.layer_norm(x, (N,)), lambda row: layer_norm(row, None, None)),
    "sigmoid": (torch.sigmoid, lambda row: [Number(1) / ((x * -1).function(math.exp) + 1) for x in row]),
    "cumsum": (lambda x: x.cumsum(-1), total),
    "cummax": (lambda x: x.cummax(-1), largest),
    "cummin": (lambda x: x.cummin(-1), largest),
}


@pytest.mark.parametrize(("function", "by_hand"), BY_HAND.values(), ids=BY_HAND.keys())
def test_rows_by_hand(function: Any, by_hand: Any) -> None:
    rows = numbers(ROWS, N)
    with tally() as done:
        for row in rows:
            by_hand(row)
    assert_counted(cost_of(function, torch.randn(ROWS, N)), done)


def test_layer_norm_with_weight_and_bias_by_hand() -> None:
    x, w, b = torch.randn(ROWS, N), torch.randn(N), torch.randn(N)
    with tally() as done:
        for row in numbers(ROWS, N):
            layer_norm(row, numbers(N), numbers(N))
    assert_counted(cost_of(lambda: F.layer_norm(x, (N,), w, b)), done)
    with tally() as done:
        for row in numbers(ROWS, N):
            rms_norm(row, numbers(N))
    kept = {"input": tensor(ROWS, N), "normalized_shape": (N,), "weight": tensor(N)}
    assert_counted(cost_of_call("aten._fused_rms_norm.default", kept, tensor(ROWS, N)), done)


def test_layer_norm_backward_by_hand() -> None:
    with tally() as done:
        for grad, row in zip(numbers(ROWS, N), numbers(ROWS, N), strict=True):
            layer_norm_backward(grad, row, Number(2.0), numbers(N))
    kept = {"grad_out": tensor(ROWS, N), "input": tensor(ROWS, N), "normalized_shape": (N,), "weight": tensor(N)}

    def cost(*mask: bool) -> int:
        call = kept | {"output_mask": mask}
        return cost_of_call("aten.native_layer_norm_backward.default", call, tensor(ROWS, N)).elementwise_flops

    assert cost(True, False, False) == done.flops == 10 * ROWS * N
    with tally() as done:
        for column in range(N):
            del column
            total([square(x) for x in numbers(ROWS)])
    assert cost(False, True, False) == done.flops
    with tally() as done:
        for column in range(N):
            del column
            total(numbers(ROWS))
    assert cost(False, False, True) == done.flops


def test_softmax_backward_by_hand() -> None:
    with tally() as done:
        for grad, out in zip(numbers(ROWS, N), numbers(ROWS, N), strict=True):
            along = total([g * y for g, y in zip(grad, out, strict=True)])
            _ = [(g - along) * y for g, y in zip(grad, out, strict=True)]
    call = {"grad_output": tensor(ROWS, N), "output": tensor(ROWS, N), "dim": -1}
    assert cost_of_call("aten._softmax_backward_data.default", call, tensor(ROWS, N)).elementwise_flops == done.flops


def test_batch_norm_training_by_hand() -> None:
    channels, m = 3, 8
    with tally() as done:
        for _ in range(channels):
            layer_norm(numbers(m), numbers(m), numbers(m))
    layer = torch.nn.BatchNorm1d(channels)
    cost = cost_of(lambda: F.batch_norm(torch.ones(4, 3, 2), None, None, layer.weight, layer.bias, training=True))
    assert cost.elementwise_flops == done.flops
    running = cost_of(lambda: layer(torch.ones(4, 3, 2)))
    assert running.elementwise_flops == done.flops + 7 * channels
    assert running.int_ops == 1


POINTWISE: dict[str, tuple[Any, int]] = {
    "add": (lambda x: x + x, 1),
    "add alpha": (lambda x: torch.add(x, x, alpha=2), 2),
    "mul": (lambda x: x * 3, 1),
    "neg": (lambda x: -x, 1),
    "clamp both": (lambda x: x.clamp(0, 1), 2),
    "clamp one": (lambda x: x.clamp(min=0), 1),
    "compare": (lambda x: x > 0, 1),
    "relu": (torch.relu, 1),
    "leaky_relu": (F.leaky_relu, 2),
    "relu6": (F.relu6, 2),
    "silu": (F.silu, 5),
    "gelu": (F.gelu, 5),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), 9),
    "softplus": (F.softplus, 3),
    "elu": (F.elu, 4),
    "selu": (F.selu, 5),
    "celu": (F.celu, 4),
    "mish": (F.mish, 5),
    "hardswish": (F.hardswish, 5),
    "hardsigmoid": (F.hardsigmoid, 4),
    "tanh": (torch.tanh, 1),
    "square": (lambda x: x**2, 1),
    "power 3": (lambda x: x**3, 2),
    "power 7": (lambda x: x**7, 4),
    "power 8": (lambda x: x**8, 3),
    "root": (lambda x: x**0.5, 1),
    "where": (lambda x: torch.where(x > 0, x, x), 2),
    "addcmul": (lambda x: torch.addcmul(x, x, x), 2),
    "addcmul value": (lambda x: torch.addcmul(x, x, x, value=2), 3),
    "addcdiv": (lambda x: torch.addcdiv(x, x, x), 2),
    "lerp": (lambda x: torch.lerp(x, x, 0.1), 3),
    "masked_fill": (lambda x: x.masked_fill(x.bool(), 0), 1),
    "flip": (lambda x: x.flip(0), 0),
    "triu": (torch.triu, 0),
}


@pytest.mark.parametrize(("function", "per_element"), POINTWISE.values(), ids=POINTWISE.keys())
def test_pointwise_table(function: Any, per_element: int) -> None:
    assert cost_of(function, torch.ones(4, 6)).elementwise_flops == 24 * per_element


def test_forms_of_one_op_cost_the_same() -> None:
    x, y = torch.ones(4), torch.ones(4)
    forms = [
        cost_of(lambda: x + y),
        cost_of(lambda: x + 1.0),
        cost_of(lambda: x.clone().add_(y)),
        cost_of(lambda: torch.add(x, y, out=torch.empty(4))),
        cost_of(lambda: torch._foreach_add([x], [y])),
        cost_of(lambda: torch._foreach_add_([x.clone()], 1.0)),
    ]
    assert {cost.elementwise_flops for cost in forms} == {4}
    assert cost_of(lambda: torch._foreach_add([x, y, x * 1], 1.0)).elementwise_flops == 4 + 3 * 4
    z = torch.ones(3, 3)
    lists = cost_of(lambda: torch._foreach_mul([x, z], [2.0, 3.0]))
    assert (lists.elementwise_flops, lists.read_bytes, lists.written_bytes) == (13, 4 * 13, 4 * 13)


def test_integers_are_no_flops() -> None:
    x = torch.ones(6, dtype=torch.int64)
    cost = cost_of(lambda: (x + x) * x)
    assert (cost.flops, cost.int_ops) == (0, 12)
    assert cost_of(x.float).flops == 0
    assert cost_of(lambda: x.to(torch.float32) + 1).flops == 6


def test_complex_elements() -> None:
    z = torch.ones(6, dtype=torch.complex64)
    assert cost_of(lambda: z + z).flops == 12
    assert cost_of(lambda: z * z).flops == 36
    assert cost_of(lambda: z * torch.ones(6)).flops == 12
    assert cost_of(z.abs).flops == 24
    assert cost_of(z.sum).flops == 10
