"""Rules of products, optimizer steps and copies of TensorFlow against what happens: loops counted, bytes added up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from tests.importers.tf1.costs.counting import Num, Shape, cost, counted, numbers, tensor

# -- products ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [*itertools.product([False, True], repeat=2)])
def test_matmul(a: bool, b: bool) -> None:
    m, k, n = 2, 3, 5
    macs = sum(1 for _ in itertools.product(range(m), range(n), range(k)))
    left, right = ((k, m) if a else (m, k)), ((n, k) if b else (k, n))
    found = cost("MatMul", [left, right], [(m, n)], transpose_a=a, transpose_b=b)
    assert (found.macs, found.elementwise_flops) == (macs, 0)
    assert (found.read_bytes, found.written_bytes) == (4 * (m * k + k * n), 4 * m * n)


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
    adds = sum(
        math.prod(sizes[n] for n in term) - math.prod(sizes[n] for n in term if n not in private) for term in terms
    )
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
    assert (found.macs, found.read_bytes) == (macs, 4 * (math.prod(weight) + math.prod(y)))
    found = cost("Conv2DBackpropFilter", [x, given, y], [weight], **options)
    assert (found.macs, found.read_bytes) == (macs, 4 * (math.prod(x) + math.prod(y)))


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
    assert (found.read_bytes, found.written_bytes) == (24 * (2 + slots), 24 * (1 + slots))


def test_nesterov_and_adam() -> None:
    shapes: list[Shape] = [(6,), (6,), (), (6,), ()]
    found = cost("ApplyMomentum", shapes, [(6,)], use_nesterov=True)
    assert numbers(found) == counted(lambda: [momentum(True) for _ in range(6)])
    found = cost("ApplyAdam", [(6,), (6,), (6,), (), (), (), (), (), (), (6,)], [(6,)])
    assert found.elementwise_flops == 13 * 6  # as every other Adam of docs/cost.md
    assert (found.read_bytes, found.written_bytes) == (4 * 24, 3 * 24)


def test_rows_of_a_variable() -> None:
    table, indices, rows = tensor((100, 5)), tensor((3,), "int32"), tensor((3, 5))
    found = cost("GatherV2", [table, indices, tensor((), "int32")], [rows])
    assert (found.flops, found.read_bytes, found.written_bytes) == (0, 12 + 60, 60)
    found = cost("ScatterSub", [table, indices, rows], [table])
    assert (found.flops, found.read_bytes, found.written_bytes) == (15, 12 + 60 + 60, 60)
    found = cost("GatherNd", [table, tensor((3, 1), "int32")], [rows])
    assert (found.read_bytes, found.written_bytes) == (12 + 60, 60)


def test_assignments() -> None:
    for type, flops, read in (("Assign", 0, 24), ("AssignAdd", 6, 48), ("AssignSubVariableOp", 6, 48)):
        found = cost(type, [(6,), (6,)], [(6,)])
        assert (found.flops, found.read_bytes, found.written_bytes) == (flops, read, 24), type


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
    assert (found.flops, found.random_draws, found.read_bytes, found.written_bytes) == (0, 6, 0, 24)
