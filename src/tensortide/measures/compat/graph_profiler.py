"""Float operations as TensorFlow's graph profiler counts them, on a graph of TensorFlow, JAX or PyTorch.

Two per multiply-accumulate, and the charges of this table; any other op is free there, ReLU, roots and exponentials
among them. Products that the profiler does not see, those of ``Einsum`` and of every run of a loop after the first, are
counted here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensortide.cost import Cost, Count
from tensortide.graph.model import Tensor

Charge: TypeAlias = Callable[[Cost, Tensor], int]
"""A function of the cost of an op and of its first result."""


def _ours(cost: Cost, out: Tensor) -> int:
    """The operations of the op as we count them, of integers, too."""
    del out
    return cost.elementwise_flops + cost.int_ops


def _twice(cost: Cost, out: Tensor) -> int:
    """Two per element of a reciprocal root."""
    del cost
    return 2 * out.numel


def _window(cost: Cost, out: Tensor) -> int:
    """The whole window of a maximum; we count the comparisons between its elements."""
    return cost.elementwise_flops + out.numel


def _softmax(cost: Cost, out: Tensor) -> int:
    """Five per element."""
    del cost
    return 5 * out.numel


def _named(prefix: str, names: str, charge: Charge) -> dict[str, Charge]:
    return {f"{prefix}.{name}": charge for name in names.split()}


CHARGES: dict[str, Charge] = {
    **_named("tf", "Add AddN AddV2 BiasAdd Sub Mul RealDiv Maximum Minimum Pow Neg Square SquaredDifference", _ours),
    **_named("tf", "Log Reciprocal Mean Sum ArgMax ArgMin AvgPool", _ours),
    **_named("tf", "Equal NotEqual Less LessEqual Greater GreaterEqual", _ours),
    **_named("tf", "Rsqrt", _twice),
    **_named("tf", "MaxPool", _window),
    **_named("tf", "Softmax", _softmax),
    # JAX has no ReLU and no ReLU6: they are a `max` and a `min`, which stay free
    **_named("jax", "add sub mul div pow integer_pow neg square log reduce_sum argmax argmin", _ours),
    **_named("jax", "reduce_window_sum eq ne lt le gt ge", _ours),
    **_named("jax", "rsqrt", _twice),
    **_named("jax", "reduce_window_max", _window),
    # products of PyTorch add their bias, and its normalizations and attention are one op each
    **_named("aten", "addmm baddbmm convolution native_batch_norm native_layer_norm", _ours),
    **_named("aten", "_scaled_dot_product_flash_attention_for_cpu", _ours),
    **_named("aten", "add sub rsub mul div maximum minimum pow neg log reciprocal mean sum var argmax argmin", _ours),
    **_named("aten", "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d", _ours),
    **_named("aten", "eq ne lt le gt ge", _ours),
    **_named("aten", "rsqrt", _twice),
    **_named("aten", "max_pool2d_with_indices max_pool3d_with_indices", _window),
    **_named("aten", "_softmax", _softmax),
}
"""Every op that is charged beside its products, in place or not."""


def float_operations(found: Count) -> int:
    """Sum up products and charges over all runs of all ops."""
    graph = found.graph
    # An op of PyTorch has an overload behind its name: aten.add_.Tensor.
    names = [".".join(call.op.split(".")[:2]).removesuffix("_") for call in graph.calls]
    total = 2 * found.total.macs
    for index in found.running:
        op, cost = graph.ops[index], found.costs[index].cost
        charge = CHARGES.get(names[op.call])
        if charge is not None and cost is not None and op.outputs:
            total += charge(cost, graph.tensors[op.outputs[0]]) * graph.trips(index)
    return total
