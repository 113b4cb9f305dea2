"""Work of the parts of a layer as the arithmetic needs it, and which layers compute a gradient of their data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.placements.modes import Mode
from tensortide.placements.nets.net import Net
from tensortide.timing.paleo import Layer
from tensortide.timing.paleo.layers import Entry
from tensortide.timing.paleo.parts import BYTES, FIRST, Parts, Work, parts

Works = tuple[Work, ...]
"""Work of the kernels of one part of a layer, one after the other."""
PartWork = tuple[Works, Works]
"""Work of the forward part and of the backward part."""

PASSING = {"Reshape"}
"""Types that only rename: they move nothing."""


def layer_work(net: Net, layers: Sequence[Layer], mode: Mode) -> list[PartWork]:
    """Work of every layer of ``net.order``, forward and backward.

    Args:
        net: the network.
        layers: its layers at the batch wanted.
        mode: which of the published faults are corrected.
    """
    reaching = _needs_gradient(net, layers) if mode.inputs_by_graph else [FIRST not in one.parents for one in layers]
    return [
        _layer_work(one, net.entries[one.name], mode, reaches) for one, reaches in zip(layers, reaching, strict=True)
    ]


def _layer_work(layer: Layer, entry: Entry, mode: Mode, reaches: bool) -> PartWork:
    if not layer.timed and mode.every_layer:
        found = _moved(layer)
    elif layer.timed == "deconvolution" or (mode.algorithmic and layer.timed == "convolution"):
        found = _arithmetic(layer)
    else:
        # The published rule knows first layers by the name of their parent; whether that counts is decided here.
        found = parts(layer._replace(parents=()))
    always = not mode.inputs_by_graph and layer.timed in ("pooling", "dropout")
    forward, backward = [found.forward], [found.data if reaches or always else Work()]
    if mode.filter_gradient:
        backward.append(found.weights)
    if mode.every_layer:
        if layer.params:
            forward[0] = _with_bias(layer, found.forward)
        if layer.params and mode.filter_gradient:
            backward.append(_bias_gradient(layer))
        more = _after_products(layer, entry)
        forward += more[0]
        backward += more[1]
    return tuple(filter(any, forward)), tuple(filter(any, backward))


def _with_bias(layer: Layer, products: Work) -> Work:
    """Products whose kernel adds the bias to each output."""
    return Work(products.flops + math.prod(layer.output), (*products.tensors, layer.output[-1] * BYTES))


def _bias_gradient(layer: Layer) -> Work:
    elements = math.prod(layer.output)
    return Work(float(elements), (elements * BYTES, layer.output[-1] * BYTES))


def _after_products(layer: Layer, entry: Entry) -> PartWork:
    """The work that follows the products of a layer: normalisation and activation."""
    elements = math.prod(layer.output)
    written = elements * BYTES
    follow = sum(function is not None for function in (entry.normalizer_fn, entry.activation_fn))
    forward = [Work(float(elements), (written, written))] * follow
    backward = [Work(float(elements), (written, written, written))] * follow
    return tuple(forward), tuple(backward)


def _arithmetic(layer: Layer) -> Parts:
    """A convolution, or a transposed one: the same products forward, for the data and for the weights."""
    assert layer.window is not None
    (kh, kw), (cin, cout) = layer.window.size, layer.window.channels
    shape = layer.inputs[0] if layer.timed == "deconvolution" else layer.output
    flops = 2.0 * kh * kw * cin * cout * shape[0] * shape[1] * shape[2]
    x, w, y = math.prod(layer.inputs[0]) * BYTES, kh * kw * cin * cout * BYTES, math.prod(layer.output) * BYTES
    return Parts(Work(flops, (x, w, y)), Work(flops, (y, w, x)), Work(flops, (x, y, w)))


def _moved(layer: Layer) -> Parts:
    """A layer without products: its inputs are read and its output written, an operation for each element written."""
    if not layer.inputs or layer.kind in PASSING:
        return Parts()
    read, written = sum(math.prod(shape) for shape in layer.inputs) * BYTES, math.prod(layer.output) * BYTES
    work = Work(float(math.prod(layer.output)), (read, written))
    return Parts(work, work)


def _needs_gradient(net: Net, layers: Sequence[Layer]) -> list[bool]:
    """For each layer whether a parent of it, or any layer upstream, has weights: then its data have a gradient."""
    trained = [False] * len(layers)
    reaches = [False] * len(layers)
    for i, layer in enumerate(layers):
        reaches[i] = any(trained[parent] for parent in net.parents[i])
        trained[i] = reaches[i] or bool(layer.params)
    return reaches


# -- optimizers -------------------------------------------------------------------------------------
# Work of an optimizer on the weights of a layer: what it reads, writes and computes once in a step.


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
