"""A dtype that a file does not say is told, and an error under --strict; one that does not exist is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.errors import Doubtful, TensortideError
from tensortide.graph import Graph
from tensortide.importers.tflite import schema
from tensortide.targets.assumptions import require_certain
from tests.importers import truths
from tests.importers.keras.test_files import layer, sequential, written
from tests.importers.tf1 import build as tf1


def guessed(graph: Graph, text: str) -> None:
    """Assert that a graph is built on an assumption, which is said and which --strict refuses."""
    assert any(text in one for one in graph.meta.assumptions), graph.meta.assumptions
    with pytest.raises(Doubtful, match="--strict"):
        require_certain(graph)


def metagraph(folder: Path, kind: str, **attributes: Any) -> Path:
    """Write a graph with an op of a ``kind`` that is not known."""
    graph = tf1.Graph()
    x = graph.feed("x", 2, 3)
    graph.train(graph.node("made", kind, x, _output_shapes=[tf1.shape(2, 3)], **attributes))
    (folder / "made.meta").write_bytes(graph.data())
    return folder / "made.meta"


def test_results_of_ops_of_tensorflow_without_a_dtype(tmp_path: Path) -> None:
    guessed(tensortide.open(metagraph(tmp_path, "Own")).graph, "Own: nothing says the dtype of 1 results")
    said = tensortide.open(metagraph(tmp_path, "Own", T=tf1.Dtype("float64"))).graph
    assert said.meta.decisive == ()
    assert {tensor.dtype for tensor in said.tensors} == {"float32", "float64"}


def test_dtypes_that_tensorflow_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tf1.NUMBERS, "float99", 77)
    with pytest.raises(TensortideError, match=r"made.meta: node made: a result has the unknown dtype dtype77"):
        tensortide.open(metagraph(tmp_path, "Own", T=tf1.Dtype("float99")))


@pytest.mark.parametrize("name", ["cond", "moe_topk", "while_constant", "while_from_input"])
def test_control_flow_of_functions_hands_dtypes_on(name: str) -> None:
    graph = tensortide.open(truths.folder() / "savedmodel" / name).graph
    assert graph.meta.decisive == ()
    handed = [op for op in graph.ops if graph.calls[op.call].op in ("tf.Switch", "tf.Enter", "tf.Merge", "tf.Exit")]
    for op in handed:
        assert graph.tensors[op.outputs[0]].dtype == graph.tensors[op.inputs[0]].dtype
    loops = name.startswith("while")
    assert ("int32" in {graph.tensors[op.outputs[0]].dtype for op in handed}) == loops


def trace(folder: Path, *kinds: str) -> Path:
    """Write a trace with one ReLU for each of the ``kinds``, and a concatenation of a list."""
    fed = [{"Input Dims": [[4, 4]], "Input type": [kind], "Concrete Inputs": [""]} for kind in kinds]
    listed = {
        "Input Dims": [[[4, 4], [4, 4]], []],
        "Input type": ["TensorList", "Scalar"],
        "Concrete Inputs": ["", "0"],
    }
    calls = [*(("aten::relu", args) for args in fed), ("aten::cat", listed)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": 9 * i, "dur": 5, "pid": 1, "tid": 1, "args": args}
        for i, (name, args) in enumerate(calls)
    ]
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    return folder / "trace.json"


def test_tensors_of_lists_in_a_trace_have_the_dtype_of_their_shape(tmp_path: Path) -> None:
    half = tensortide.open(trace(tmp_path, "c10::Half", "c10::Half")).graph
    assert half.meta.decisive == ()
    assert {tensor.dtype for tensor in half.tensors} == {"float16"}
    for kinds in ((), ("c10::Half", "float")):
        guessed(tensortide.open(trace(tmp_path, *kinds)).graph, "2 tensors in lists, of which a trace has no dtypes")


@pytest.mark.parametrize(
    ("dtype", "said"), [("float99", "the input 'x' has the unknown dtype float99"), ("", "the unknown dtype")]
)
def test_inputs_of_keras_without_a_known_dtype(dtype: str, said: str, tmp_path: Path) -> None:
    model = sequential(layer("Dense", "d", [None, 4], units=3))
    model["config"]["layers"][0]["config"]["dtype"] = dtype
    with pytest.raises(TensortideError, match=said):
        tensortide.open(written(tmp_path / "net.keras", model))


def test_layers_of_keras_with_an_unknown_dtype(tmp_path: Path) -> None:
    model = sequential(layer("Dense", "d", [None, 4], units=3, dtype="float99"))
    with pytest.raises(TensortideError, match="its dtype float99 is unknown"):
        tensortide.open(written(tmp_path / "net.keras", model))


def test_results_of_layers_of_keras_that_nothing_is_known_of(tmp_path: Path) -> None:
    model = sequential(layer("Own", "own", [None, 4]))
    guessed(tensortide.open(written(tmp_path / "net.keras", model)).graph, "taken to have the dtype of its input")


def test_types_that_tensorflow_lite_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_DTYPES", {number: one for number, one in schema._DTYPES.items() if number})
    with pytest.raises(TensortideError, match=r"tensor '.*' has the unknown type 0"):
        tensortide.open(truths.folder() / "tflite" / "mlp.tflite")


def refused(made: Any, folder: Path, said: str) -> None:
    """Assert that a model of ONNX is refused."""
    with pytest.raises(TensortideError, match=said):
        opened(made, folder)


def opened(made: Any, folder: Path) -> Graph:
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return tensortide.open(folder / "model.onnx").graph


def test_dtypes_that_onnx_does_not_have(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from tests.importers.onnx.build import FLOAT, model, node

    fed = {"x": (FLOAT, [2, 3])}
    kinds: list[Callable[[], Any]] = [
        lambda: model([node("Relu", "x", "y")], {"x": (99, [2, 3])}, "y"),
        lambda: model([node("Cast", "x", "y", to=99)], fed, "y"),
        lambda: model([node("EyeLike", "x", "y", dtype=99)], fed, "y"),
        lambda: model([node("RandomNormal", "", "y", shape=[2], dtype=99)], fed, "y"),
    ]
    for made in kinds:
        refused(made(), tmp_path, "unknown dtype 99")
    refused(model([node("Relu", "x", "y")], {"x": (0, [2, 3])}, "y"), tmp_path, "the input x has no dtype")


def test_results_of_ops_of_onnx_without_a_dtype(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from tests.importers.onnx.build import FLOAT, model, node, port

    made = model([node("Own", "x", "y", domain="own")], {"x": (10, [2, 3])}, "y")
    graph = opened(made, tmp_path)
    guessed(graph, "y is taken to have the dtype of its first input")
    assert {tensor.dtype for tensor in graph.tensors} == {"float16"}
    del made.graph.output[:]
    made.graph.output.append(port("y", FLOAT, [2, 3]))
    assert opened(made, tmp_path).meta.decisive == ()
