"""Damaged and hostile models: a graph that is valid, or one error, in bounded time."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import TensortideError
from tests.importers.onnx.models import OWN

FILES = sorted(OWN.glob("*.onnx"))
NUMBERS = (-1, 0, 1, 7, 1 << 40, -(1 << 62), (1 << 63) - 1)
KINDS = (
    "Loop", "If", "Scan", "Reshape", "Concat", "Slice", "Tile", "Expand", "Range", "Gather", "ConstantOfShape",
    "Resize", "LSTM", "Einsum", "Attention", "Split", "Pad", "NonZero", "TopK", "Conv", "SequenceAt", "Transpose",
)  # fmt: skip
LONGEST_S = 10.0


def bytes_changed(data: bytes, draw: random.Random) -> bytes:
    """Change, drop, put in or overwrite a few bytes, or cut the end."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(max(1, len(made)))
        match draw.randrange(5):
            case 0 if made:
                made[at % len(made)] = draw.randrange(256)
            case 1:
                del made[at : at + draw.randint(1, 8)]
            case 2:
                made[at:at] = draw.randbytes(draw.randint(1, 8))
            case 3:
                made[at : at + 4] = draw.choice([b"\xff" * 4, bytes(4), b"\x80" * 4])
            case _ if draw.random() < 0.2:
                del made[at:]
    return bytes(made)


def nodes_of(model: Any) -> list[Any]:
    """All nodes: of the graph, of functions, of graphs inside nodes."""
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    for node in nodes:
        nodes += [inner for attribute in node.attribute if attribute.HasField("g") for inner in attribute.g.node]
    return nodes


def meaning_changed(data: bytes, draw: random.Random) -> bytes:
    """Change what a model says: op types, attributes, inputs, sizes."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(draw.randint(1, 3)):
        node = draw.choice(nodes_of(model))
        match draw.randrange(6):
            case 0 if node.attribute:
                attribute = draw.choice(list(node.attribute))
                if attribute.type == onnx.AttributeProto.INT:
                    attribute.i = draw.choice(NUMBERS)
                elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
                    attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(NUMBERS)
            case 1 if node.input:
                node.input[draw.randrange(len(node.input))] = draw.choice(["", "nowhere", *node.input])
            case 2:
                node.op_type = draw.choice(KINDS)
            case 3 if model.graph.initializer:
                tensor = draw.choice(list(model.graph.initializer))
                if tensor.dims:
                    tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(NUMBERS)
            case 4 if model.graph.input:
                dims = draw.choice(list(model.graph.input)).type.tensor_type.shape.dim
                if dims:
                    draw.choice(list(dims)).dim_param = draw.choice(["batch", "a*b", "2*x", "-3", "((", "x" * 300])
            case _ if node.input:
                node.input.pop()
    return bytes(model.SerializeToString())


def assert_read_or_refused(path: Path, data: bytes, **options: Any) -> bool:
    """Assert that the file is read as a valid graph, or that there is one error of ours, soon."""
    path.write_bytes(data)
    start = time.monotonic()
    try:
        count(tensortide.open(path, **options).graph)
    except TensortideError:
        return False
    finally:
        assert time.monotonic() - start < LONGEST_S
    return True


def assert_robust(path: Path, number: int, seed: int) -> None:
    draw = random.Random(seed)
    files = [file.read_bytes() for file in FILES if "overflow" not in file.name]
    read = 0
    for i in range(number):
        changed = meaning_changed if i % 2 else bytes_changed
        read += assert_read_or_refused(path, changed(draw.choice(files), draw), train=i % 4 == 1, optimizer="sgd")
    assert number // 10 < read < number  # some damage does no harm, some does


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert_robust(tmp_path / "x.onnx", 200, seed=1)


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert_robust(tmp_path / "x.onnx", 1500, seed=2)


def nested(depth: int) -> Any:
    """Loops inside one another, each of a million trips, around one product."""
    helper = onnx.helper
    trips, true = helper.make_tensor("trips", 7, [], [10**6]), helper.make_tensor("true", 9, [], [True])
    x = helper.make_tensor_value_info("s", 1, [2, 2])

    def body(level: int) -> Any:
        state, out = f"s{level}", f"o{level}"
        inner = (
            helper.make_node("Loop", ["trips", "", state], [out], body=body(level - 1)) if level
            else helper.make_node("MatMul", [state, "w"], [out])
        )  # fmt: skip
        keep = helper.make_node("Identity", [f"c{level}"], [f"k{level}"])
        ports = [
            helper.make_tensor_value_info(f"i{level}", 7, []), helper.make_tensor_value_info(f"c{level}", 9, []),
            helper.make_tensor_value_info(state, 1, [2, 2]),
        ]  # fmt: skip
        outs = [helper.make_tensor_value_info(f"k{level}", 9, []), helper.make_tensor_value_info(out, 1, [2, 2])]
        return helper.make_graph([inner, keep], f"b{level}", ports, outs)

    loop = helper.make_node("Loop", ["trips", "", "s"], ["y"], body=body(depth - 1))
    weight = helper.make_tensor("w", 1, [2, 2], [1.0] * 4)
    graph = helper.make_graph([loop], "g", [x], [helper.make_tensor_value_info("y", 1, [2, 2])], [trips, true, weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_loops_in_loops_multiply_and_are_not_unrolled() -> None:
    graph = tensortide.open(nested(12)).graph
    assert count(graph).total.macs == 8 * (10**6) ** 12


def test_a_function_that_calls_itself_is_an_error() -> None:
    helper = onnx.helper
    call = helper.make_node("F", ["a"], ["b"], domain="local")
    function = helper.make_function("local", "F", ["a"], ["b"], [call], [helper.make_opsetid("local", 1)])
    ports = [helper.make_tensor_value_info("x", 1, [1])], [helper.make_tensor_value_info("y", 1, [1])]
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="local")], "g", *ports)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    with pytest.raises(TensortideError, match="local::F calls itself"):
        tensortide.open(helper.make_model(graph, opset_imports=opsets, functions=[function]))


def test_an_opset_that_is_not_read_is_named() -> None:
    model = onnx.ModelProto.FromString((OWN / "loop_constant.onnx").read_bytes())
    model.opset_import[0].version = 9999
    with pytest.raises(TensortideError, match="opset 9999"):
        tensortide.open(model)


@pytest.mark.parametrize(
    ("kind", "shape", "attributes", "error"),
    [
        ("Cast", (4,), {"to": 0}, "its attribute to is the unknown dtype 0"),
        ("Squeeze", (2, 3), {"axes": [1]}, "it leaves out a dimension of 3"),
        ("MaxPool", (1, 3, 8, 8), {"kernel_shape": [-2, 2]}, r"its attribute kernel_shape is \(-2, 2\)"),
    ],
)
def test_attributes_that_are_wrong_are_named(
    kind: str, shape: tuple[int, ...], attributes: dict[str, Any], error: str
) -> None:
    helper = onnx.helper
    node = helper.make_node(kind, ["x"], ["y"], **attributes)
    ports = [helper.make_tensor_value_info("x", 1, shape)], [helper.make_empty_tensor_value_info("y")]
    model = helper.make_model(helper.make_graph([node], "g", *ports), opset_imports=[helper.make_opsetid("", 11)])
    with pytest.raises(TensortideError, match=error):
        tensortide.open(model)


def test_a_huge_fill_is_a_size_and_no_memory() -> None:
    helper = onnx.helper
    shape = helper.make_tensor("shape", 7, [1], [10**18])
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", 1, [10**18])], [shape])
    found = tensortide.open(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert max(storage.nbytes for storage in found.graph.storages) == 4 * 10**18
