"""Multiply-accumulates that deeplite-profiler 1.2.5 charges for a node: its own convention, mistakes included.

A node of another name than these, and one named in ``UNCHARGED``, costs nothing there: attention, recurrent layers and
most activations among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tensortide.measures.compat.nodes import Node


class Charge(NamedTuple):
    """Handler of a node: its value, and what the part of it is that is no matrix product or convolution."""

    value: Callable[[Node], int]
    extra: Callable[[Node], int] = lambda node: 0
    reason: str = ""


def _product(node: Node) -> int:
    """Two operands of one or more dimensions, as vectors and matrices; ``linear`` has its weight transposed."""
    first, second = [value.tensor.shape for value in list(node.inputs.values())[:2]]
    if len(first) == 1:
        return first[0] * (1 if len(second) == 1 else second[-1])
    if len(second) == 1:
        return math.prod(first)
    output = node.outputs[0].tensor.shape
    batch, n, p = (output[:-2], output[-2], output[-1]) if len(output) > 1 else ((), 1, output[-1])
    return math.prod(batch) * n * first[-1] * p


def _added_product(node: Node) -> int:
    """``addmm`` and ``addmv``: all but the first operand are multiplied."""
    first, second = [value.tensor.shape for value in list(node.inputs.values())[1:3]]
    return math.prod(first) * (second[1] if len(second) > 1 else 1)


def _batched_product(node: Node) -> int:
    first, second = [value.tensor.shape for value in list(node.inputs.values())[:2]]
    return math.prod(first) * second[-1]


def _convolution(node: Node) -> int:
    """The output's elements times what the weight has per output channel, and one more for a bias, always."""
    weight, output = node.shape("weight") or (), node.outputs[0].tensor.shape
    channels = output[1] if len(output) == len(weight) else output[0]
    inner = weight[1] if weight[0] == channels else weight[0]
    return node.elements * inner * math.prod(weight[2:]) + node.elements


def _elements(node: Node) -> int:
    return node.elements


def _affine(node: Node) -> int:
    return node.elements if "weight" in node.inputs else 0


def _inputs(node: Node) -> int:
    return next(iter(node.inputs.values())).tensor.numel


def _all(value: Callable[[Node], int], reason: str) -> Charge:
    """A charge for what is no product."""
    return Charge(value, value, reason)


_PER_ELEMENT = "charged one per output element"
CHARGES: dict[str, Charge] = {
    "addmm": Charge(_added_product),
    "addmv": Charge(_added_product),
    "bmm": Charge(_batched_product),
    "linear": Charge(_product),
    "matmul": Charge(_product),
    **dict.fromkeys(
        ("_convolution", "conv1d", "conv3d"),
        Charge(_convolution, _elements, "charged one more per output element, as for a bias, with or without one"),
    ),
    **dict.fromkeys(
        ("batch_norm", "instance_norm", "layer_norm", "group_norm"),
        _all(_affine, "charged one per output element where affine"),
    ),
    **dict.fromkeys(
        (
            *("relu", "relu_", "leaky_relu", "relu6", "prelu", "elu", "mul", "mul_", "mean"),
            *(f"{kind}avg_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)),
        ),
        _all(_elements, _PER_ELEMENT),
    ),
    **dict.fromkeys((f"max_pool{n}d" for n in (1, 2, 3)), _all(_inputs, "charged one per input element")),
    "upsample_bilinear2d": _all(lambda node: 4 * node.elements, "charged four per output element"),
}
"""Every node that is charged, by name."""


def charge(node: Node) -> int:
    """The multiply-accumulates charged for a node."""
    found = CHARGES.get(node.name)
    return found.value(node) if found is not None and node.outputs else 0
