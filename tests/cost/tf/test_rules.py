"""Rules of TensorFlow ops against what happens: the computation done number by number, every operation counted."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from tensortide.capture.metagraph.operands import operands
from tensortide.cost import Cost
from tensortide.cost.evaluate import apply, rule_for
from tensortide.cost.opcall import OpCall
from tensortide.expr import expr_of, sized, symbol
from tensortide.graph import TENSOR, Tensor

Shape = tuple[int, ...]
made = itertools.count()


def tensor(shape: Shape, dtype: str = "float32") -> Tensor:
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return Tensor(next(made), dtype, shape, strides)


def call(type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **attributes: Any) -> OpCall:
    given = iter(inputs)
    arguments: dict[str, object] = {
        name: tuple(next(given) for _ in value) if isinstance(value, tuple) else next(given)
        for name, value in operands(type, len(inputs))
        if value is TENSOR or isinstance(value, tuple)
    }
    result = tuple(outputs) if len(outputs) > 1 else outputs[0] if outputs else None
    return OpCall(f"tf::{type}", {**arguments, **attributes}, outputs, result)


def cost(type: str, inputs: Sequence[Shape | Tensor], outputs: Sequence[Shape | Tensor], **attributes: Any) -> Cost:
    """The cost of an op on float tensors of these shapes."""
    tensors = [[t if isinstance(t, Tensor) else tensor(t) for t in group] for group in (inputs, outputs)]
    made = call(type, tensors[0], tensors[1], **attributes)
    rule = rule_for(made.name)
    assert rule is not None, type
    found = apply(rule, made)
    assert found is not None
    return found


class Num:
    """A number that counts what is done to it."""

    counts: ClassVar[Counter[str]] = Counter()

    def _did(self, what: str) -> Num:
        Num.counts[what] += 1
        return Num()

    def __add__(self, other: object = None) -> Num:
        return self._did("flop")

    __sub__ = __mul__ = __radd__ = __rsub__ = __rmul__ = __neg__ = __add__

    def __truediv__(self, other: object) -> Num:
        return self._did("special")

    __rtruediv__ = __truediv__

    def special(self) -> Num:
        """exp, log, sqrt, ..."""
        return self._did("special")

    def compared(self, other: object = None) -> Num:
        """max, >, ..."""
        return self._did("compared")


def counted(work: Callable[[], object]) -> tuple[int, int, int]:
    """FLOPs, special functions and comparisons of ``work``."""
    Num.counts.clear()
    work()
    return sum(Num.counts.values()), Num.counts["special"], Num.counts["compared"]


def numbers(cost: Cost) -> tuple[int, int, int]:
    return cost.elementwise_flops, cost.transcendentals, cost.comparisons


def total(values: Sequence[Num]) -> Num:
    first, *rest = values
    for value in rest:
        first = first + value
    return first


def highest(values: Sequence[Num]) -> Num:
    first, *rest = values
    for value in rest:
        first = first.compared(value)
    return first


# -- products ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [*itertools.product([False, True], repeat=2)])
def test_matmul(a: bool, b: bool) -> None:
    m, k, n = 2, 3, 5
    macs = sum(1 for _ in itertools.product(range(m), range(n), range(k)))
    left, right = ((k, m) if a else (m, k)), ((n, k) if b else (k, n))
    found = cost("MatMul", [left, right], [(m, n)], transpose_a=a, transpose_b=b)
    assert (found.macs, found.elementwise_flops) == (macs, 0)
    assert (found.bytes_read, found.bytes_written) == (4 * (m * k + k * n), 4 * m * n)


@pytest.mark.parametrize("adjoint", [False, True])
def test_batch_matmul_broadcasts(adjoint: bool) -> None:
    macs = sum(1 for _ in itertools.product(range(7), range(2), range(3), range(5), range(4)))
    left = (7, 2, 4, 3) if adjoint else (7, 2, 3, 4)
    assert cost("BatchMatMulV2", [left, (1, 2, 4, 5)], [(7, 2, 3, 5)], adj_x=adjoint).macs == macs


@pytest.mark.parametrize(
    ("equation", "shapes", "out"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], (2, 3, 5)),
        ("ij,jk->", [(3, 4), (4, 5)], ()),
        ("i,j->ij", [(3,), (4,)], (3, 4)),
    ],
)
def test_einsum(equation: str, shapes: list[Shape], out: Shape) -> None:
    """First what only one operand has is summed, then products of all that is left."""
    left, right = equation.split("->")
    sizes = {
        name: n
        for term, shape in zip(left.split(","), shapes, strict=True)
        for name, n in zip(term, shape, strict=True)
    }
    terms = left.split(",")
    private = {n for n in sizes if n not in right and sum(n in term for term in terms) == 1}
    adds = sum(math.prod(sizes[n] for n in term) for term in terms if private & set(term))
    work = math.prod(n for name, n in sizes.items() if name not in private)
    contracts = bool(set(sizes) - private - set(right))
    found = cost("Einsum", shapes, [out], equation=equation)
    assert (found.macs, found.elementwise_flops) == ((work, adds) if contracts else (0, work + adds))


def sites(size: int, kernel: int, stride: int, padding: str) -> int:
    return sum(1 for start in range(0, size, stride) if padding == "SAME" or start + kernel <= size)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_convolution_and_its_gradients(layout: str, padding: str) -> None:
    """One multiply-accumulate per image, output site, tap, input and output channel; padding taps included."""
    n, size, kernel, stride, cin, cout = 2, 7, 3, 2, 4, 5
    out = sites(size, kernel, stride, padding)
    macs = sum(
        1
        for _ in itertools.product(
            range(n), range(out), range(out), range(kernel), range(kernel), range(cin), range(cout)
        )
    )

    def image(extent: int, channels: int) -> Shape:
        return (n, channels, extent, extent) if layout == "NCHW" else (n, extent, extent, channels)

    x, y, weight = image(size, cin), image(out, cout), (kernel, kernel, cin, cout)
    options = {"data_format": layout, "padding": padding, "strides": (1, 2, 2, 1)}
    given = tensor((4,), "int32")
    assert cost("Conv2D", [x, weight], [y], **options).macs == macs
    found = cost("Conv2DBackpropInput", [given, weight, y], [x], **options)
    assert (found.macs, found.bytes_read) == (macs, 4 * (math.prod(weight) + math.prod(y)))
    found = cost("Conv2DBackpropFilter", [x, given, y], [weight], **options)
    assert (found.macs, found.bytes_read) == (macs, 4 * (math.prod(x) + math.prod(y)))


def test_grouped_and_depthwise_convolution() -> None:
    """With g groups a filter sees Cin/g channels."""
    groups, cin, cout = 2, 4, 6
    macs = sum(
        1 for _ in itertools.product(range(25), range(9), range(groups), range(cin // groups), range(cout // groups))
    )
    assert cost("Conv2D", [(1, 5, 5, cin), (3, 3, cin // groups, cout)], [(1, 5, 5, cout)]).macs == macs
    macs = sum(1 for _ in itertools.product(range(25), range(9), range(cin), range(2)))
    x, weight, y = (1, 5, 5, cin), (3, 3, cin, 2), (1, 5, 5, 2 * cin)
    assert cost("DepthwiseConv2dNative", [x, weight], [y]).macs == macs
    assert cost("DepthwiseConv2dNativeBackpropInput", [(4,), weight, y], [x]).macs == macs
    assert cost("DepthwiseConv2dNativeBackpropFilter", [x, (4,), y], [weight]).macs == macs


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


# -- state ------------------------------------------------------------------------------------------


def momentum(nesterov: bool) -> Num:
    slot = Num() * 0.9 + Num()
    return Num() - ((slot * 0.9 + Num()) * 0.1 if nesterov else slot * 0.1)


STEPS: dict[str, tuple[list[str], Callable[[], object], int]] = {
    "ApplyGradientDescent": (["var", "alpha", "delta"], lambda: Num() - Num() * 0.1, 0),
    "ApplyMomentum": (["var", "accum", "lr", "grad", "momentum"], lambda: momentum(False), 1),
}


@pytest.mark.parametrize("type", STEPS)
def test_optimizer_steps(type: str) -> None:
    names, work, slots = STEPS[type]
    shapes: list[Shape] = [(6,) if name in ("var", "accum", "grad", "delta") else () for name in names]
    found = cost(type, shapes, [(6,)])
    assert numbers(found) == counted(lambda: [work() for _ in range(6)])
    assert (found.bytes_read, found.bytes_written) == (24 * (2 + slots), 24 * (1 + slots))


def test_nesterov_and_adam() -> None:
    shapes: list[Shape] = [(6,), (6,), (), (6,), ()]
    found = cost("ApplyMomentum", shapes, [(6,)], use_nesterov=True)
    assert numbers(found) == counted(lambda: [momentum(True) for _ in range(6)])
    found = cost("ApplyAdam", [(6,), (6,), (6,), (), (), (), (), (), (), (6,)], [(6,)])
    assert found.elementwise_flops == 13 * 6  # as every other Adam of docs/cost.md
    assert (found.bytes_read, found.bytes_written) == (4 * 24, 3 * 24)


def test_rows_of_a_variable() -> None:
    table, indices, rows = tensor((100, 5)), tensor((3,), "int32"), tensor((3, 5))
    found = cost("GatherV2", [table, indices, tensor((), "int32")], [rows])
    assert (found.flops, found.bytes_read, found.bytes_written) == (0, 12 + 60, 60)
    found = cost("ScatterSub", [table, indices, rows], [table])
    assert (found.flops, found.bytes_read, found.bytes_written) == (15, 12 + 60 + 60, 60)
    found = cost("GatherNd", [table, tensor((3, 1), "int32")], [rows])
    assert (found.bytes_read, found.bytes_written) == (12 + 60, 60)


def test_assignments() -> None:
    for type, flops, read in (("Assign", 0, 24), ("AssignAdd", 6, 48), ("AssignSubVariableOp", 6, 48)):
        found = cost(type, [(6,), (6,)], [(6,)])
        assert (found.flops, found.bytes_read, found.bytes_written) == (flops, read, 24), type


# -- what moves, and what does not ------------------------------------------------------------------


@pytest.mark.parametrize(
    "type", ["Identity", "Reshape", "Squeeze", "Enter", "Switch", "StackPushV2", "Shape", "Const", "NoOp"]
)
def test_what_is_free(type: str) -> None:
    found = cost(type, [(2, 3)], [(6,)])
    assert (found.flops, found.bytes) == (0, 0)


def test_copies_move_what_they_take() -> None:
    index = tensor((2,), "int32")
    assert cost("Slice", [(10, 10), index, index], [(2, 3)]).bytes == 2 * 24
    assert cost("ConcatV2", [(2, 3), (2, 5), tensor((), "int32")], [(2, 8)]).bytes == 24 + 40 + 4 + 64
    assert cost("Transpose", [(2, 3), index], [(3, 2)]).bytes == 24 + 8 + 24
    assert cost("TensorArrayGatherV3", [tensor((2,), "resource"), (7,), ()], [(7, 3)]).bytes == 2 * 84
    assert cost("TensorArrayScatterV3", [tensor((2,), "resource"), (7,), (7, 3), ()], [()]).bytes == 2 * 84
    assert cost("Fill", [index, ()], [(6,)]).bytes == 24
    assert cost("ZerosLike", [(6,)], [(6,)]).bytes == 24
    assert cost("Cast", [tensor((6,), "uint8")], [(6,)]).bytes == 6 + 24


def test_random_numbers_are_draws() -> None:
    found = cost("RandomUniform", [tensor((2,), "int32")], [(2, 3)])
    assert (found.flops, found.random_draws, found.bytes_read, found.bytes_written) == (0, 6, 0, 24)
