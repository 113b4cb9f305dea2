"""Work of an optimizer on the weights of a layer: what it reads, writes and computes once in a step."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.timing.paleo import Layer
from tensortide.timing.paleo.parts import BYTES, Work


class Optimizer(NamedTuple):
    """Tensors of state beside each weight, and FLOPs for each weight as ``cost.rules.optimizers`` counts them."""

    states: int
    flops: int


OPTIMIZERS = {"sgd": Optimizer(0, 2), "momentum": Optimizer(1, 4), "adam": Optimizer(2, 13)}
"""Optimizers by name, without weight decay."""


def update_work(layer: Layer, optimizer: str) -> Work:
    """Work of the update of a layer, one kernel: weights, gradients and states are read, weights and states written.

    Examples:
        >>> dense = Layer("fc", "InnerProduct", (), ((1, 3),), (1, 2), params=8)
        >>> [sum(update_work(dense, name).tensors) for name in OPTIMIZERS]
        [96, 160, 224]
    """
    if not layer.params:
        return Work()
    states, flops = OPTIMIZERS[optimizer]
    return Work(float(layer.params * flops), (layer.params * BYTES,) * (3 + 2 * states))
