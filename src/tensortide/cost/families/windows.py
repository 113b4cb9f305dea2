"""Families that work on windows: pooling, resampling, normalization over neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.cost.access import BytesRule, interface
from tensortide.cost.families.table import family
from tensortide.cost.kinds import Weights, chosen, elements, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Rule

POOLS = {
    "max": ((1, -1), 0, True, "K - 1 comparisons per output"),
    "mean": ((1, 0), 1, False, "K per output: K - 1 adds, 1 division"),
    "sum": ((1, -1), 0, False, "K - 1 per output"),
    "norm": ((2, 0), 1, False, "2 K per output: squares, their sum, a root"),
    "rms": ((2, 1), 1, False, "2 K + 1 per output: squares, their mean, a root"),
    "max_gradient": ((0, 1), 0, False, "1 per output of the forward"),
    "mean_gradient": ((1, 1), 1, False, "K + 1 per output of the forward"),
}
"""Per window of K elements: FLOPs for each and for the result, special functions, and whether FLOPs are comparisons."""


@family("window")
def pool(how: str, window: str, *, of: str = "out", bytes: BytesRule = interface) -> Rule:
    """Windows reduced. ``window``: the attributes whose product is its size; ``of``: an operand with an element for
    each window."""
    (each, last), special, compared, formula = chosen("how", how, POOLS)

    def work(op: OpCall) -> Cost:
        """Each window reduced to an element, or a gradient spread over it."""
        taps = math.prod(math.prod(value if isinstance(value, tuple) else (value,)) for value in _given(op, window))
        op.let(K=taps)
        flops = each * taps + last
        return elements(op, op.operand(of).numel, Weights(flops, special, flops * compared, 2 * flops))

    return Rule("", formula, work, bytes)


def covered(sizes: Sequence[int], outputs: Sequence[int]) -> int:
    """Elements in all windows that reach from floor(i n / o) to ceil((i + 1) n / o), dimension by dimension.

    >>> covered([4], [2]), covered([5], [2]), covered([4, 4], [1, 1])
    (4, 6, 16)
    """
    return math.prod(
        sum(-(-(i + 1) * n // o) - i * n // o for i in range(o)) for n, o in zip(sizes, outputs, strict=True)
    )


@family("window")
def adaptive(how: str, *, gradient: str = "", bytes: BytesRule = interface) -> Rule:
    """The largest, or the ``mean``, of windows that divide the first operand evenly, along the axes that the result has
    shorter. ``gradient``: the operand that is spread over the windows."""
    mean = chosen("how", how, {"max": False, "mean": True})

    def work(op: OpCall) -> Cost:
        """Each window reduced to an element, or a gradient spread over it."""
        small, large = (op.operand(gradient), op.operand("self")) if gradient else (op.out, op.inputs[0])
        pairs = [(int(n), int(m)) for n, m in zip(large.shape, small.shape, strict=True) if int(n) != int(m)]
        inner, outer = [n for n, _ in pairs], [m for _, m in pairs]
        count = small.numel
        met = count // max(1, math.prod(outer)) * covered(inner, outer)
        op.let(covered=met, E=count)
        if not mean:
            return Cost(elementwise_flops=met - count, comparisons=met - count)
        return Cost(elementwise_flops=met + count * bool(gradient), transcendentals=count)

    last = "" if mean else " - 1 comparisons"
    return Rule("", f"window size{last}{' + 1' * bool(gradient)} per output" + " of the forward" * bool(gradient), work,
                bytes)  # fmt: skip


def _given(op: OpCall, names: str) -> list[tuple[int, ...] | int]:
    return [op.arg(name, ()) for name in names.split()]


@family("window")
def resample(taps: int, *, of: str = "out", gradient: bool = False) -> Rule:
    """Images of another size, each element a weighted sum of ``taps`` neighbours; one: a copy, or copies summed."""

    def work(op: OpCall) -> Cost:
        """Weighted sums of neighbours, or a gradient spread over them."""
        if taps == 1:
            return elements(op, max(0, op.inputs[0].numel - op.out.numel) * gradient, Weights(1))
        return elements(op, op.operand(of).numel, Weights(2 * taps - (not gradient), 0, 0, 4 * taps))

    name = f"{2 * taps} per element of the gradient" if gradient else f"{taps} multiplies, {taps - 1} adds per output"
    return Rule(
        "", name if taps > 1 else "adds = gradient elements - image elements" if gradient else "0: a copy", work
    )


@family("window")
def folded(family: str = "", *, bytes: BytesRule = interface) -> Rule:
    """Overlapping parts, or copies, summed into what they were taken from."""

    def work(op: OpCall) -> Cost:
        """One addition for each element more than the result has."""
        return rows_work(op, max(0, op.inputs[0].numel - op.out.numel))

    return Rule("", "adds = input elements - output elements, at least 0", work, bytes, family=family)


@family("normalization", "first")
def local_response(size: str = "", radius: str = "", default: int = 0, fixed: int = 4) -> Rule:
    """Elements by the squares of their neighbours in other channels, as many as ``size`` or twice ``radius`` say."""

    def work(op: OpCall) -> Cost:
        """Squares of neighbouring channels summed, scaled, raised and divided by."""
        n = int(op.arg(size, 1)) if size else 2 * int(op.arg(radius, default)) + 1
        return elements(op, op.out.numel, Weights(n + fixed, 2))

    return Rule("", f"n + {fixed} per element, n channels", work)
