"""What data decide is said: sizes, arms; symbols stay symbols through the ops that compute shapes."""

from __future__ import annotations

from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import TensortideError, WorkloadError
from tensortide.expr import expr_of
from tensortide.graph import Graph
from tests.importers.onnx.build import BOOL, FLOAT, INT64, graph, model, node, stored

W = stored("w", FLOAT, [4, 4], 1.0)


def opened(made: Any, **symbols: int) -> Graph:
    return tensortide.open(made, hyperparameters=symbols or None).graph


def test_a_condition_that_is_known_takes_its_arm() -> None:
    arms = {
        "then_branch": graph([node("MatMul", "x w", "a")], [], ["a"]),
        "else_branch": graph([node("Relu", "x", "b")], [], ["b"]),
    }
    yes = stored("yes", BOOL, [], True)
    found = opened(model([node("If", "yes", "y", **arms)], {"x": (FLOAT, [2, 4])}, "y", [W, yes]))
    assert not found.branches
    assert count(found).total.macs == 32


def test_sizes_computed_in_the_graph_stay_symbols() -> None:
    """A batch of sequences is reshaped to rows, multiplied, and reshaped back, by shapes that the graph computes."""
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape zero", "batch"), node("Gather", "shape one", "seq"),
        node("Mul", "batch seq", "rows"), node("Concat", "rows four", "flat", axis=0),
        node("Reshape", "x flat", "matrix"), node("MatMul", "matrix w", "z"),
        node("Concat", "batch seq minus", "back", axis=0), node("Reshape", "z back", "y"),
    ]  # fmt: skip
    kept = [W, *(stored(name, INT64, [1], [n]) for name, n in [("zero", 0), ("one", 1), ("four", 4), ("minus", -1)])]
    found = opened(model(nodes, {"x": (FLOAT, ["batch", "seq", 4])}, "y", kept))
    assert str(expr_of(count(found).total.macs)) == "16*batch*seq"
    assert str(expr_of(found.tensors[found.ops[-1].outputs[0]].shape[1])) == "seq"
    assert tuple(opened(model(nodes, {"x": (FLOAT, ["b", 3, 4])}, "y", kept), b=5).tensors[-1].shape) == (5, 3, 4)


def test_a_size_that_data_decide_is_a_symbol_with_a_bound() -> None:
    nodes = [node("NonZero", "x", "places", name="pick"), node("Transpose", "places", "y")]
    found = tensortide.open(model(nodes, {"x": (FLOAT, [3, 4])}, "y"))
    assert found.symbols == {"pick.count": 12}
    given = opened(model(nodes, {"x": (FLOAT, [3, 4])}, "y"), **{"pick.count": 5})
    assert tuple(given.tensors[-1].shape) == (5, 2)


def test_an_unknown_symbol_is_refused_with_those_that_there_are() -> None:
    made = model([node("Relu", "x", "y")], {"x": (FLOAT, ["batch", 4])}, "y")
    with pytest.raises(WorkloadError, match="did you mean batch"):
        opened(made, bach=3)


def test_sequences_and_optionals_are_followed() -> None:
    nodes = [
        node("SplitToSequence", "x", "parts", axis=0), node("SequenceAt", "parts two", "part"),
        node("SequenceInsert", "parts part", "more"), node("ConcatFromSequence", "more", "all", axis=0),
        node("Optional", "all", "maybe"), node("OptionalGetElement", "maybe", "y"),
    ]  # fmt: skip
    found = opened(model(nodes, {"x": (FLOAT, [6, 3])}, "y", [stored("two", INT64, [], 2)], opset=18))
    assert tuple(found.tensors[found.ops[-1].outputs[0]].shape) == (7, 3)


def test_packed_weights_take_the_bytes_that_are_stored() -> None:
    import onnx

    weight = onnx.helper.make_tensor("q", onnx.TensorProto.INT4, [5, 3], bytes(8), raw=True)
    nodes = [node("DequantizeLinear", "q scale", "w4"), node("MatMul", "x w4", "y")]
    found = opened(model(nodes, {"x": (FLOAT, [2, 5])}, "y", [weight, stored("scale", FLOAT, [], 1.0)], opset=21))
    sizes = {storage.name: storage.nbytes for storage in found.storages}
    assert sizes["q"] == 8
    assert count(found, strict=True).total.macs == 2 * 5 * 3


def test_sparse_weights_take_the_bytes_that_are_stored() -> None:
    import onnx

    values, indices = stored("v", FLOAT, [3], 1.0), stored("i", INT64, [3], [0, 5, 9])
    made = model([node("MatMul", "x v", "y")], {"x": (FLOAT, [2, 4])}, "y")
    made.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4, 3]))
    found = opened(made)
    assert {storage.name: storage.nbytes for storage in found.storages}["v"] == 3 * (4 + 8)
    assert count(found).total.macs == 2 * 4 * 3


def test_sequence_lengths_leave_the_active_products_unknown() -> None:
    gates = [stored("wx", FLOAT, [1, 24, 5]), stored("wh", FLOAT, [1, 24, 6])]
    made = node("LSTM", "x wx wh - lengths", "y", hidden_size=6)
    cost = count(opened(model([made], {"x": (FLOAT, [7, 3, 5]), "lengths": (6, [3])}, "y", gates))).total
    assert cost.macs == 7 * 3 * 24 * (5 + 6)
    assert cost.cost.active_macs is None


def test_operands_that_do_not_match_are_an_error_that_names_the_node() -> None:
    made = model([node("MatMul", "x w", "y", name="fc")], {"x": (FLOAT, [2, 5])}, "y", [W])
    with pytest.raises(TensortideError, match=r"node fc \(MatMul\): the sizes 5 and 4 .* \(2, 5\), \(4, 4\)"):
        opened(made)
