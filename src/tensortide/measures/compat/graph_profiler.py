"""Float operations as TensorFlow's graph profiler counts them, on a traced graph of TensorFlow or JAX.

Two per multiply-accumulate, and the charges of this table; any other op is free there, ReLU, roots and exponentials
among them. Products that the profiler does not see, those of ``Einsum`` and of every run of a loop after the first, are
counted here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensortide.cost import Cost, Count
from tensortide.errors import Unavailable
from tensortide.graph.model import Tensor

Charge: TypeAlias = Callable[[Cost, Tensor], int]
"""A function of the cost of an op and of its first result."""


def _ours(cost: Cost, out: Tensor) -> int:
    """The FLOPs of the op as we count them."""
    del out
    return cost.elementwise_flops


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
}
"""Every op that is charged beside its products."""


def float_operations(found: Count) -> int:
    """Sum up products and charges over all runs of all ops. Raises Unavailable for a graph of another framework."""
    graph = found.graph
    names = [call.op for call in graph.calls]
    if not any(name.startswith(("tf.", "jax.")) for name in names):
        raise Unavailable("float operations are charged to ops of TensorFlow and JAX: run Keras on one of them")
    total = 2 * found.total.macs
    for index in found.running:
        op, cost = graph.ops[index], found.costs[index].cost
        charge = CHARGES.get(names[op.call])
        if charge is not None and cost is not None and op.outputs:
            total += charge(cost, graph.tensors[op.outputs[0]]) * graph.trips(index)
    return total
