"""Shapes of single ops, on sizes where a wrong rule shows: odd extents, broadcasting, groups, negative axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensortide.cost.families.einsum import indices
from tensortide.expr import symbol
from tensortide.importers.tensorflow.program import MetaGraphError
from tensortide.importers.tensorflow.read import read_program
from tensortide.importers.tensorflow.shapes import TABLE
from tensortide.importers.tensorflow.shapes.op import shape_of
from tests.importers.tf1.build import FLOAT, INT, Dtype, Graph, counted_loop, shape, tensor, underived, variables

Dims = tuple[int, ...]


class Scalar(int):
    """A whole-number input."""


def outputs(
    kind: str,
    inputs: Sequence[Dims | list[int] | Scalar],
    *,
    preparation: Any = "default",
    count: int = 1,
    **attributes: Any,
) -> list[Dims]:
    """The shapes of an op's outputs on stored shapes (tuples), vectors of whole numbers (lists) and scalars."""
    graph = Graph()
    names = []
    for i, given in enumerate(inputs):
        if isinstance(given, tuple):
            names.append(graph.feed(f"x{i}", *given))
        elif isinstance(given, Scalar):
            names.append(graph.scalar(f"x{i}", given))
        else:
            names.append(graph.const(f"x{i}", *given))
    graph.node("op", kind, *names, **attributes)
    for i in range(count):
        graph.node(f"read{i}", "Identity", f"op:{i}")
    graph.train("op", *(f"read{i}" for i in range(count)))
    program = read_program(graph.data(), preparation=preparation)
    node = next(node for node in program.nodes if node.name == "op")
    return [tuple(int(dim.evaluate(program.hints)) for dim in spec.shape or ()) for spec in node.outputs]


IMAGE: dict[str, Any] = {"strides": [1, 2, 2, 1], "data_format": "NHWC"}
CASES: list[tuple[str, list[Any], dict[str, Any], list[Dims]]] = [
    ("Conv2D", [(2, 15, 17, 3), (3, 3, 3, 5)], {**IMAGE, "padding": "SAME"}, [(2, 8, 9, 5)]),
    ("Conv2D", [(2, 15, 17, 3), (3, 3, 3, 5)], {**IMAGE, "padding": "VALID"}, [(2, 7, 8, 5)]),
    ("Conv2D", [(2, 15, 15, 4), (3, 3, 2, 6)], {"strides": [1, 1, 1, 1], "padding": "SAME"}, [(2, 15, 15, 6)]),
    ("Conv2D", [(2, 15, 15, 4), (3, 3, 4, 6)],
     {"strides": [1, 1, 1, 1], "padding": "VALID", "dilations": [1, 2, 2, 1]}, [(2, 11, 11, 6)]),
    ("Conv2D", [(2, 3, 15, 17), (3, 3, 3, 5)],
     {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"}, [(2, 5, 8, 9)]),
    ("Conv3D", [(2, 5, 7, 9, 3), (3, 3, 3, 3, 4)], {"strides": [1, 1, 2, 2, 1], "padding": "VALID"}, [(2, 3, 3, 4, 4)]),
    ("DepthwiseConv2dNative", [(2, 9, 9, 3), (3, 3, 3, 2)], {"strides": [1, 2, 2, 1], "padding": "SAME"}, [(2, 5, 5,
    6)]),
    ("MaxPool", [(2, 15, 17, 3)], {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}, [(2, 8, 9, 3)]),
    ("AvgPool", [(2, 15, 17, 3)], {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}, [(2, 7, 8, 3)]),
    ("Conv2DBackpropInput", [[2, 15, 17, 3], (3, 3, 3, 5), (2, 8, 9, 5)], {**IMAGE, "padding": "SAME"}, [(2, 15, 17,
    3)]),
    ("Conv2DBackpropFilter", [(2, 15, 17, 3), [3, 3, 3, 5], (2, 8, 9, 5)], {**IMAGE, "padding": "SAME"}, [(3, 3, 3,
    5)]),
    ("FusedBatchNormV3", [(2, 7, 7, 9), (9,), (9,), (9,), (9,)], {}, [(2, 7, 7, 9), *[(9,)] * 4]),
    ("AddV2", [(2, 1, 5), (4, 1)], {}, [(2, 4, 5)]),
    ("SelectV2", [(5,), (3, 1), ()], {}, [(3, 5)]),
    ("BatchMatMulV2", [(3, 1, 4, 5), (2, 6, 5)], {"adj_y": True}, [(3, 2, 4, 6)]),
    ("MatMul", [(5, 4), (5, 6)], {"transpose_a": True}, [(4, 6)]),
    ("Einsum", [(3, 4, 5), (5, 6)], {"equation": "abc,cd->adb"}, [(3, 6, 4)]),
    ("Einsum", [(2, 3, 4, 5), (3, 5, 6)], {"equation": "...ij,...jk->...ik"}, [(2, 3, 4, 6)]),
    ("Einsum", [(3, 4), (4, 5)], {"equation": "ij,jk"}, [(3, 5)]),
    ("Reshape", [(6, 10), [3, -1, 4]], {}, [(3, 5, 4)]),
    ("Transpose", [(2, 3, 4), [2, 0, 1]], {}, [(4, 2, 3)]),
    ("ConcatV2", [(2, 3), (2, 4), Scalar(-1)], {}, [(2, 7)]),
    ("Split", [Scalar(1), (2, 12)], {"num_split": 3}, [(2, 4)] * 3),
    ("SplitV", [(2, 12), [3, -1, 4], Scalar(1)], {"num_split": 3}, [(2, 3), (2, 5), (2, 4)]),
    ("Slice", [(5, 6), [1, 2], [-1, 3]], {}, [(4, 3)]),
    ("StridedSlice", [(9, 6, 5), [1, 0], [-1, 6], [2, 1]], {"shrink_axis_mask": 2}, [(4, 5)]),
    ("StridedSlice", [(9, 6, 5), [0, 0], [0, 2], [1, 1]], {"ellipsis_mask": 1}, [(9, 6, 2)]),
    ("StridedSlice", [(9,), [0], [0], [-1]], {"begin_mask": 1, "end_mask": 1}, [(9,)]),
    ("StridedSlice", [(9,), [0, 0], [0, 5], [1, 1]], {"new_axis_mask": 1}, [(1, 5)]),
    ("Pad", [(4, 5), [1, 2, 0, 3]], {}, [(7, 8)]),
    ("Tile", [(2, 3), [4, 5]], {}, [(8, 15)]),
    ("Squeeze", [(1, 3, 1)], {}, [(3,)]),
    ("Squeeze", [(1, 3, 1)], {"squeeze_dims": [-1]}, [(1, 3)]),
    ("ExpandDims", [(3, 4), Scalar(-1)], {}, [(3, 4, 1)]),
    ("Pack", [(3, 4), (3, 4)], {"axis": -1, "N": 2}, [(3, 4, 2)]),
    ("Unpack", [(3, 2, 4)], {"axis": 1, "num": 2}, [(3, 4), (3, 4)]),
    ("OneHot", [(3, 4), Scalar(9), Scalar(1), Scalar(0)], {"axis": -1}, [(3, 4, 9)]),
    ("Range", [Scalar(3), Scalar(20), Scalar(5)], {}, [(4,)]),
    ("Fill", [[4, 5], Scalar(1)], {}, [(4, 5)]),
    ("GatherV2", [(9, 4, 5), (2, 3), Scalar(1)], {}, [(9, 2, 3, 5)]),
    ("GatherNd", [(9, 4, 5), (7, 2)], {}, [(7, 5)]),
    ("UnsortedSegmentSum", [(9, 4), (9,), Scalar(6)], {}, [(6, 4)]),
    ("TopKV2", [(3, 40), Scalar(7)], {}, [(3, 7), (3, 7)]),
    ("ArgMax", [(3, 4, 5), Scalar(1)], {}, [(3, 5)]),
    ("Sum", [(3, 4, 5), [0, -1]], {"keep_dims": True}, [(1, 4, 1)]),
    ("Mean", [(3, 4, 5), [0, -1]], {}, [(4,)]),
    ("Cumsum", [(3, 4), Scalar(0)], {}, [(3, 4)]),
    ("BiasAdd", [(3, 4), (4,)], {}, [(3, 4)]),
    ("BiasAddGrad", [(2, 5, 8, 9)], {"data_format": "NCHW"}, [(5,)]),
    ("SparseSoftmaxCrossEntropyWithLogits", [(6, 9), (6,)], {}, [(6,), (6, 9)]),
    ("Where", [(4, 5)], {}, [(20, 2)]),
    ("SpaceToDepth", [(2, 6, 8, 3)], {"block_size": 2}, [(2, 3, 4, 12)]),
    ("BroadcastGradientArgs", [[3, 1, 5], [4, 5]], {}, [(1,), (1,)]),
    ("MatrixDiag", [(3, 4)], {}, [(3, 4, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "expected"), CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)]
)
def test_shape(kind: str, inputs: list[Any], attributes: dict[str, Any], expected: list[Dims]) -> None:
    assert outputs(kind, inputs, count=len(expected), **attributes) == expected


def test_padding_does_not_count_for_the_other_table() -> None:
    for padding in ("SAME", "VALID"):
        found = outputs("Conv2D", [(2, 15, 17, 3), (3, 3, 3, 5)], preparation="catamount", padding=padding, **IMAGE)
        assert found == [(2, 7, 8, 5)]


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("MatMul", [(3, 4), (5, 6)]),
        ("MatMul", [(3, 4)]),
        ("Add", [(3, 4), (3, 5)]),
        ("ConcatV2", [(3, 4), (5, 5), Scalar(1)]),
        ("Reshape", [(3, 4), [5, 5]]),
        ("Transpose", [(3, 4), [0, 2]]),
        ("Sum", [(3, 4), [7]]),
    ],
    ids=["extents", "missing", "broadcast", "concat", "reshape", "order", "axis"],
)
def test_shapes_that_do_not_fit_name_the_node(kind: str, inputs: list[Any]) -> None:
    with pytest.raises(MetaGraphError, match=rf"node op: \({kind}\)"):
        outputs(kind, inputs)


def test_an_unknown_type_keeps_what_the_file_says() -> None:
    graph = Graph()
    graph.feed("x", -1, 32)
    graph.node("op", "SomethingOfTheirs", "x", _output_shapes=[shape(-1, 64), None], T=FLOAT)
    graph.node("y", "Relu", "op", T=FLOAT)
    graph.train("y")
    program = read_program(graph.data())
    (relu,) = (node for node in program.nodes if node.name == "y")
    assert underived(program) == ("op:0::dim_0",)
    assert relu.outputs[0].shape is not None
    assert str(relu.outputs[0].shape[1]) == "64"
    assert program.nodes[1].outputs[1].shape == (symbol("op:1::elements"),)


def test_values_of_shapes_reach_through_arithmetic() -> None:
    """Half of the rows of a feed, twice as many columns, computed as the framework does."""
    graph = Graph()
    graph.feed("x", -1, 48)
    graph.node("shape", "Shape", "x", out_type=INT)
    graph.const("factors", 1, 2)
    graph.node("wider", "Mul", "shape", "factors", T=INT)
    graph.node(
        "zeros", "Fill", "wider", graph.node("zero", "Const", value=tensor(0, (), "float32"), dtype=FLOAT), T=FLOAT
    )
    graph.train("zeros")
    program = read_program(graph.data())
    zeros = program.nodes[-1]
    assert [str(dim) for dim in zeros.outputs[0].shape or ()] == ["b", "2*f"]
    assert zeros.outputs[0].dtype == "float32"


def test_a_part_of_a_table_has_not_its_elements() -> None:
    """Paddings cut out of a table, a length picked behind an ellipsis: neither is known, and neither is wrong."""
    graph = Graph()
    graph.feed("x", 4, 5)
    graph.node("table", "Const", dtype=INT, value=tensor([0, 0, 1, 2, 0, 3], (3, 2)))
    graph.node("pads", "Slice", "table", graph.const("begin", 1, 0), graph.const("size", 2, 2), T=INT)
    graph.node("padded", "Pad", "x", "pads", T=FLOAT)
    bounds = [graph.const("from", 0, 1), graph.const("to", 0, 2), graph.const("by", 1, 1)]
    graph.node("dims", "StridedSlice", graph.const("vector", 7, 9, 11), *bounds, ellipsis_mask=1)
    graph.node("filled", "Fill", "dims", graph.scalar("zero", 0), T=INT)
    graph.train("padded", "filled")
    program = read_program(graph.data())
    assert (sizes(program, "pads"), sizes(program, "dims")) == (["2", "2"], ["1"])
    assert {"padded:0::elements", "filled:0::elements"} <= program.hints.keys()


def test_dtypes() -> None:
    graph = Graph()
    graph.feed("x", 4, 9)
    graph.node("less", "Less", "x", "x", T=FLOAT)
    graph.node("cast", "Cast", "less", SrcT=Dtype("bool"), DstT=Dtype("bfloat16"))
    graph.node("best", "TopKV2", "x", graph.scalar("k", 3), T=FLOAT)
    graph.node("index", "Identity", "best:1", T=INT)
    graph.train("cast", "index")
    dtypes = {node.name: [spec.dtype for spec in node.outputs] for node in read_program(graph.data()).nodes}
    assert dtypes["less"] == ["bool"]
    assert dtypes["cast"] == ["bfloat16"]
    assert dtypes["best"] == ["float32", "int32"]


def test_one_function_per_type() -> None:
    with pytest.raises(ValueError, match="MatMul"):
        shape_of("MatMul")(TABLE["MatMul"])


def test_einsum_without_result() -> None:
    assert indices("ij, jk", [2, 2]) == (["ij", "jk"], "ik")
    assert indices("...ij, ...jk", [3, 4]) == (["\u03b2ij", "\u03b1\u03b2jk"], "\u03b1\u03b2ik")


def sizes(program: Any, name: str) -> list[str]:
    node = next(node for node in program.nodes if node.name == name)
    return [str(dim) for dim in node.outputs[0].shape or ()]


def test_resource_variables_have_their_shape() -> None:
    graph = Graph()
    graph.feed("ids", -1, dtype=INT)
    graph.node("table", "VarHandleOp", dtype=FLOAT, shape=shape(900, 40))
    graph.node("W", "VarHandleOp", dtype=FLOAT, shape=shape(40, 80))
    graph.node("x", "ResourceGather", "table", "ids", dtype=FLOAT)
    graph.node("read", "ReadVariableOp", "W", dtype=FLOAT)
    graph.node("y", "MatMul", "x", "read")
    graph.node("g", "MatMul", "x", "y", transpose_a=True)
    graph.node("rate", "Const", value=tensor(0, (), "float32"), dtype=FLOAT)
    graph.node("update", "ResourceApplyGradientDescent", "W", "rate", "g", T=FLOAT)
    graph.train("update")
    program = read_program(graph.data())
    assert sizes(program, "table") == ["v", "h"]
    assert sizes(program, "W") == sizes(program, "g") == ["h", "2*h"]
    assert sizes(program, "y") == ["b", "2*h"]
    assert variables(program) == ("table", "W")


def test_stashes_of_functional_loops() -> None:
    """What is pushed on a tensor list in one loop is popped from it in another."""
    graph = Graph()
    graph.feed("x", -1, 40)
    graph.scalar("steps", 7)
    graph.node("list", "EmptyTensorList", graph.const("any"), "steps", element_dtype=FLOAT)

    def push(states: list[str], _: list[str]) -> list[str]:
        y = graph.node("y", "Tanh", states[0], T=FLOAT)
        return [y, graph.node("push", "TensorListPushBack", states[1], y, element_dtype=FLOAT)]

    def pop(states: list[str], _: list[str]) -> list[str]:
        graph.node("pop", "TensorListPopBack", states[1], "any", element_dtype=FLOAT)
        return [graph.node("back", "TanhGrad", "pop:1", states[0], T=FLOAT), "pop"]

    forward = counted_loop(graph, "forward", "steps", ["x", "list"], push)
    backward = counted_loop(graph, "backward", forward[0], [forward[1], forward[2]], pop)
    graph.train(backward[1])
    program = read_program(graph.data())
    assert sizes(program, "back") == ["b", "f"]
    assert [(str(loop.trips), loop.gradient_of) for loop in program.loops] == [("7", -1), ("7", 0)]


def test_an_image_is_flattened_into_rows() -> None:
    """``(b, h, w, c)`` made ``(-1, n)``: the rows are the batch, ``n`` follows from the image."""
    graph = Graph()
    graph.feed("x", -1, 15, 17, 3)
    graph.variable("K", 3, 3, 3, 16)
    graph.variable("W", 8 * 9 * 16, 200)
    graph.node("y", "Conv2D", "x", "K", strides=[1, 2, 2, 1], padding="SAME")
    graph.node("flat", "Reshape", "y", graph.const("shape", -1, 8 * 9 * 16), T=FLOAT)
    graph.node("z", "MatMul", "flat", "W")
    graph.train("z")
    program = read_program(graph.data())
    assert sizes(program, "y") == ["b", "ceil(H/2)", "ceil(W/2)", "c"]
    assert sizes(program, "flat") == ["b", "c*ceil(H/2)*ceil(W/2)"]
