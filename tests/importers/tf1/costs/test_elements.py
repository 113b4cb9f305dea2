"""Rules of elementwise ops, rows and windows of TensorFlow: done number by number, every operation counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensortide.cost.evaluate import rule_for
from tensortide.cost.opcall import OpCall
from tensortide.expr import expr_of, sized, symbol
from tests.importers.tf1.costs.counting import Num, cost, counted, highest, numbers, tensor, total

# -- elements ---------------------------------------------------------------------------------------

ELEMENT: dict[str, Callable[[Num, Num], object]] = {
    "Add": lambda x, y: x + y,
    "Mul": lambda x, y: x * y,
    "Sub": lambda x, y: x - y,
    "RealDiv": lambda x, y: x / y,
    "SquaredDifference": lambda x, y: _squared(x - y),
    "Maximum": lambda x, y: x.compared(y),
    "Less": lambda x, y: x.compared(y),
    "TanhGrad": lambda y, dy: dy * (1 - y * y),
    "SigmoidGrad": lambda y, dy: dy * y * (1 - y),
    "ReluGrad": lambda dy, x: x.compared(),
    "SqrtGrad": lambda y, dy: dy * 0.5 / y,
    "RsqrtGrad": lambda y, dy: dy * (-0.5) * y * y * y,
    "FloorDiv": lambda x, y: (x / y).compared(),
}
UNARY: dict[str, Callable[[Num], object]] = {
    "Neg": lambda x: -x,
    "Square": lambda x: x * x,
    "Tanh": lambda x: x.special(),
    "Exp": lambda x: x.special(),
    "Rsqrt": lambda x: x.special(),
    "Erf": lambda x: x.special(),
    "Reciprocal": lambda x: 1 / x,
    "Sigmoid": lambda x: 1 / (1 + (-x).special()),
    "Relu": lambda x: x.compared(),
    "Softplus": lambda x: (1 + x.special()).special(),
}


def _squared(difference: Num) -> Num:
    return difference * difference


@pytest.mark.parametrize("type", ELEMENT)
def test_elements_of_two(type: str) -> None:
    def work() -> None:
        for _ in range(6):
            ELEMENT[type](Num(), Num())

    assert numbers(cost(type, [(2, 3), (2, 3)], [(2, 3)])) == counted(work)


@pytest.mark.parametrize("type", [name for name in UNARY if name != "Softplus"])
def test_elements_of_one(type: str) -> None:
    def work() -> None:
        for _ in range(6):
            UNARY[type](Num())

    assert numbers(cost(type, [(2, 3)], [(2, 3)])) == counted(work)


def test_integers_and_booleans_are_no_flops() -> None:
    for type in ("Add", "Mul", "Less", "FloorMod", "Maximum", "Sum", "Prod"):
        shapes = [tensor((6,), "int32")] * (1 if type in ("Sum", "Prod") else 2)
        found = cost(type, shapes, [tensor((1,) if type in ("Sum", "Prod") else (6,), "int32")])
        assert found.flops == 0, type
        assert found.int_ops >= 5, type
    assert cost("LogicalAnd", [tensor((6,), "bool")] * 2, [tensor((6,), "bool")]).int_ops == 6


def test_lists_and_losses() -> None:
    assert numbers(cost("AddN", [(5,)] * 4, [(5,)])) == counted(lambda: [total([Num()] * 4) for _ in range(5)])
    assert numbers(cost("L2Loss", [(3, 4)], [()])) == counted(lambda: total([x * x for x in [Num()] * 12]) * 0.5)


# -- rows -------------------------------------------------------------------------------------------


def softmax(row: list[Num]) -> list[Num]:
    top = highest(row)
    powers = [(x - top).special() for x in row]
    scale = total(powers)
    return [x / scale for x in powers]


def log_softmax(row: list[Num]) -> list[Num]:
    top = highest(row)
    shifted = [x - top for x in row]
    log = total([x.special() for x in shifted]).special()
    return [x - log for x in shifted]


def sparse_loss(row: list[Num], gradient: bool) -> None:
    top = highest(row)
    shifted = [x - top for x in row]
    powers = [x.special() for x in shifted]
    scale = total(powers)
    scale.special() - shifted[0]
    if gradient:
        (powers[0] / scale) - 1
        [x / scale for x in powers[1:]]


def dense_loss(row: list[Num], gradient: bool) -> None:
    top = highest(row)
    shifted = [x - top for x in row]
    powers = [x.special() for x in shifted]
    scale = total(powers)
    log = scale.special()
    total([(log - x) * Num() for x in shifted])
    if gradient:
        [x / scale - Num() for x in powers]


def test_softmax() -> None:
    assert numbers(cost("Softmax", [(2, 3, 7)], [(2, 3, 7)])) == counted(
        lambda: [softmax([Num()] * 7) for _ in range(6)]
    )
    found = cost("LogSoftmax", [(6, 7)], [(6, 7)])
    assert numbers(found) == counted(lambda: [log_softmax([Num()] * 7) for _ in range(6)])


@pytest.mark.parametrize("read", [True, False])
def test_cross_entropy(read: bool) -> None:
    for type, work, labels in (
        ("SparseSoftmaxCrossEntropyWithLogits", sparse_loss, tensor((6,), "int64")),
        ("SoftmaxCrossEntropyWithLogits", dense_loss, tensor((6, 7))),
    ):
        logits, loss, back = tensor((6, 7)), tensor((6,)), tensor((6, 7))
        made = OpCall(
            f"tf::{type}", {"features": logits, "labels": labels}, (loss, back), (loss, back),
            unused=frozenset() if read else frozenset([1]),
        )  # fmt: skip
        rule = rule_for(made.name)
        assert rule is not None
        found = rule.work(made)
        assert found is not None
        assert numbers(found) == counted(lambda work=work: [work([Num()] * 7, read) for _ in range(6)])  # type: ignore[misc]


def test_reductions() -> None:
    axis = tensor((1,), "int32")
    rows = [[Num()] * 7 for _ in range(6)]
    assert numbers(cost("Sum", [(6, 7), axis], [(6,)])) == counted(lambda: [total(row) for row in rows])
    assert numbers(cost("BiasAddGrad", [(6, 7)], [(7,)])) == counted(lambda: [total([Num()] * 6) for _ in range(7)])
    assert numbers(cost("Max", [(6, 7), axis], [(6, 1)])) == counted(lambda: [highest(row) for row in rows])
    assert numbers(cost("ArgMax", [(6, 7), axis], [tensor((6,), "int64")])) == counted(
        lambda: [highest(row) for row in rows]
    )
    assert numbers(cost("Mean", [(6, 7), axis], [(6,)])) == counted(lambda: [total(row) / 7 for row in rows])
    assert cost("Sum", [(6, 7), axis], [(6,)]).bytes == 4 * (6 * 7 + 6)


@pytest.mark.parametrize("type", ["Sum", "Mean", "Max", "Prod"])
def test_a_reduction_over_no_axes_is_a_view(type: str) -> None:
    found = cost(type, [(6, 7), tensor((0,), "int32")], [(6, 7)])
    assert (found.flops, found.bytes) == (0, 0)


def test_a_reduction_over_an_axis_of_one_is_none_by_formula_too() -> None:
    """A batch that happens to be 1: E - R is 0 there, and not everywhere."""
    batch = sized(symbol("b"), 1)
    found = cost("Sum", [(batch, 7), (1,)], [(7,)])
    assert found.elementwise_flops == 0
    assert expr_of(found.elementwise_flops) == 7 * symbol("b") - 7


def test_batch_norm() -> None:
    """Mean, centred, variance, root; scaled and shifted: one channel of m elements at a time."""
    m, channels = 2 * 3 * 3, 4

    def work() -> None:
        for _ in range(channels):
            x = [Num()] * m
            mean = total(x) / m
            centred = [v - mean for v in x]
            variance = total([v * v for v in centred]) / m
            scale = (variance + 1e-3).special()
            [v * scale * Num() + Num() for v in centred]

    shape = (2, 3, 3, channels)
    found = cost("FusedBatchNorm", [shape, (4,), (4,), (0,), (0,)], [shape, (4,), (4,), (4,), (4,)], is_training=True)
    assert numbers(found) == counted(work)


@pytest.mark.parametrize("type", ["MaxPool", "AvgPool"])
def test_pools(type: str) -> None:
    window, out = 3 * 2, 2 * 4 * 4 * 5

    def work() -> None:
        for _ in range(out):
            highest([Num()] * window) if type == "MaxPool" else total([Num()] * window) / window

    assert numbers(cost(type, [(2, 8, 8, 5)], [(2, 4, 4, 5)], ksize=(1, 3, 2, 1))) == counted(work)
