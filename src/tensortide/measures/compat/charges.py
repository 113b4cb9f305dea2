"""Multiply-accumulates that deeplite-profiler 1.2.5 charges for a node: its own convention, mistakes included.

A node of another name than these, and one named in ``UNCHARGED``, costs nothing there: attention, recurrent layers and
most activations among them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from tensortide.errors import Unavailable
from tensortide.graph.model import Graph
from tensortide.measures.compat.liveness import BYTES, LiveNode, live_nodes
from tensortide.measures.compat.nodes import Node, NodeGraph
from tensortide.timelines.resident import GIVEN


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


# -- memory footprint -------------------------------------------------------------------------------
# The footprint of deeplite-profiler 1.2.5 against our activation peak, storage by storage.


def footprint_reasons(traced: NodeGraph, batch: int) -> tuple[int, dict[str, Fraction | int]]:
    """Return our activation peak in bytes, and what leads from it to the footprint there: bytes by reason."""
    graph = traced.graph
    at, resident = _peak(graph)
    ours = sum(graph.storages[storage].nbytes for storage in resident)
    try:
        rows = live_nodes(traced)
    except Unavailable:
        return ours, {}
    peak = max(rows, key=lambda row: row.nbytes, default=None)
    live = 0 if peak is None else peak.nbytes
    reasons: dict[str, Fraction | int] = defaultdict(int)
    if peak is not None:
        _compare(graph, peak, resident, at, reasons)
    reasons["the live bytes are multiplied by 4 once more"] += 3 * live
    reasons[f"divided by the batch of {batch}"] += Fraction(4 * live, batch) - 4 * live
    return ours, dict(reasons)


def _peak(graph: Graph) -> tuple[int, set[int]]:
    """The op at which most bytes of results are resident, and the storages that are."""
    results = {
        index: storage
        for index, storage in enumerate(graph.storages)
        if storage.birth is not None and storage.role not in GIVEN
    }
    change = [0] * (len(graph.ops) + 1)
    for storage in results.values():
        change[storage.birth or 0] += storage.nbytes
        if storage.death is not None:
            change[storage.death] -= storage.nbytes
    best = at = total = 0
    for index, delta in enumerate(change[:-1]):
        total += delta
        if total > best:
            best, at = total, index
    end = len(graph.ops)
    alive = {
        index
        for index, storage in results.items()
        if (storage.birth or 0) <= at < (end if storage.death is None else storage.death)
    }
    return at, alive


def _compare(graph: Graph, peak: LiveNode, resident: set[int], at: int, reasons: dict[str, Fraction | int]) -> None:
    """Add the difference between the live values at their peak and the storages at ours."""
    where, here = f"their peak, at {peak.node.name}", f"ours, at op {at}"
    seen: set[int] = set()
    for value in peak.live:
        storage, counted = value.tensor.storage, BYTES * value.tensor.numel
        if storage in seen:
            reasons["views and results in place count as further values"] += counted
            continue
        seen.add(storage)
        whole = graph.storages[storage].nbytes
        if storage not in resident:
            what = "inputs and weights seen through views" if graph.storages[storage].birth is None else "results"
            reasons[f"{what} that are live at {where}, and not at {here}"] += counted
        elif value.tensor.nbytes == whole:
            reasons[f"{value.tensor.dtype} counted as 4 bytes"] += counted - whole
        else:
            reasons["views counted by their own elements, and not by the storage that they keep"] += counted - whole
    for storage in resident - seen:
        reasons[f"storages resident at {here}, that are no live values at {where}"] -= graph.storages[storage].nbytes
