"""Shapes of operations of Keras are those that NumPy and PyTorch return; without one the cost is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensortide
from tensortide.cost import count
from tensortide.errors import TensortideError
from tests.importers.keras.test_files import layer, written

X = np.ones((2, 6, 8), np.float32)
Y = np.ones((8, 5), np.float32)
COLONS = {"class_name": "__slice__", "config": {"start": None, "stop": None, "step": None}}
DOTS = {"class_name": "__ellipsis__", "config": {}}
PART = {"class_name": "__slice__", "config": {"start": 1, "stop": -1, "step": 2}}


def channels_last(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return function(torch.ones(2, 8, 6)).transpose(1, 2)


CASES: dict[str, tuple[str, dict[str, Any], tuple[Any, ...], Callable[[], Any]]] = {
    "sum": ("Sum", {"axis": 1, "keepdims": False}, (X,), lambda: X.sum(1)),
    "sums of two axes": ("Sum", {"axis": [0, -1], "keepdims": True}, (X,), lambda: X.sum((0, 2), keepdims=True)),
    "mean of all": ("Mean", {"axis": None, "keepdims": False}, (X,), X.mean),
    "argmax": ("Argmax", {"axis": -1, "keepdims": False}, (X,), lambda: X.argmax(-1)),
    "quantiles": ("Quantile", {"axis": [1], "keepdims": False}, (X, [0.1, 0.5]), lambda: np.quantile(X, [0.1, 0.5], 1)),
    "trace": ("Trace", {"offset": 0, "axis1": 1, "axis2": 2}, (X,), lambda: np.trace(X, 0, 1, 2)),
    "diagonal": ("Diagonal", {"offset": 3, "axis1": 2, "axis2": 0}, (X,), lambda: np.diagonal(X, 3, 2, 0)),
    "cumsum": ("Cumsum", {"axis": None}, (X,), lambda: np.cumsum(X)),
    "diff": ("Diff", {"n": 2, "axis": 1}, (X,), lambda: np.diff(X, 2, 1)),
    "broadcast": ("Add", {}, (X, Y[:, 0]), lambda: X + Y[:, 0]),
    "matmul": ("Matmul", {}, (X, Y), lambda: X @ Y),
    "dot": ("Dot", {}, (X, X.transpose(0, 2, 1)), lambda: np.dot(X, X.transpose(0, 2, 1))),
    "inner": ("Inner", {}, (X, X), lambda: np.inner(X, X)),
    "outer": ("Outer", {}, (X, Y), lambda: np.outer(X, Y)),
    "kron": ("Kron", {}, (X, Y), lambda: np.kron(X, Y)),
    "tensordot": ("Tensordot", {"axes": [[2, 1], [0, 2]]}, (X, X.transpose(2, 0, 1)),
                  lambda: np.tensordot(X, X.transpose(2, 0, 1), ([2, 1], [0, 2]))),
    "cross": ("Cross", {"axisa": 0, "axisb": -1, "axisc": 0, "axis": None}, (X[:1].repeat(3, 0), Y[0, :3]),
              lambda: np.cross(X[:1].repeat(3, 0), Y[0, :3], 0, -1, 0)),
    "einsum": ("Einsum", {"subscripts": "b...k,kn->n...b"}, (X, Y), lambda: np.einsum("b...k,kn->n...b", X, Y)),
    "concatenate": ("Concatenate", {"axis": -1}, ([X, X],), lambda: np.concatenate([X, X], -1)),
    "stack": ("Stack", {"axis": -1}, ([X, X, X],), lambda: np.stack([X, X, X], -1)),
    "hstack": ("Hstack", {}, ([X, X],), lambda: np.hstack([X, X])),
    "split": ("Split", {"indices_or_sections": [1, 4], "axis": 1}, (X,), lambda: np.split(X, [1, 4], 1)),
    "uneven split": ("ArraySplit", {"indices_or_sections": 4, "axis": 1}, (X,), lambda: np.array_split(X, 4, 1)),
    "pad": ("Pad", {"pad_width": [[0, 0], [1, 2], [3, 0]]}, (X,), lambda: np.pad(X, [(0, 0), (1, 2), (3, 0)])),
    "repeat": ("Repeat", {"repeats": 3, "axis": 1}, (X,), lambda: np.repeat(X, 3, 1)),
    "tile": ("Tile", {"repeats": [2, 1, 1, 3]}, (X,), lambda: np.tile(X, [2, 1, 1, 3])),
    "take": ("Take", {"axis": 1}, (X, [[0, 1, 2]]), lambda: X.take([[0, 1, 2]], 1)),
    "item": ("GetItem", {}, (X, [None, PART, DOTS, 0]), lambda: X[None, 1:-1:2, ..., 0]),
    "row": ("GetItem", {}, (X, [COLONS, 3]), lambda: X[:, 3]),
    "transpose": ("Transpose", {"axes": [2, 0, 1]}, (X,), lambda: X.transpose(2, 0, 1)),
    "moveaxis": ("Moveaxis", {"source": [0, 1], "destination": [-1, 0]}, (X,), lambda: np.moveaxis(X, [0, 1], [-1, 0])),
    "expand": ("ExpandDims", {"axis": -2}, (X,), lambda: np.expand_dims(X, -2)),
    "squeeze": ("Squeeze", {"axis": None}, (X[:1],), X[:1].squeeze),
    "reshape": ("Reshape", {"newshape": [4, -1]}, (X,), lambda: X.reshape(4, -1)),
    "qr": ("Qr", {"mode": "reduced"}, (X,), lambda: np.linalg.qr(X)),
    "one hot": ("OneHot", {"num_classes": 5, "axis": 1}, (Y,),
                lambda: torch.nn.functional.one_hot(torch.from_numpy(Y).long(), 5).movedim(-1, 1)),
    "max pool": ("MaxPool", {"pool_size": 3, "strides": 2, "padding": "valid", "data_format": "channels_last"}, (X,),
                 lambda: channels_last(lambda x: torch.max_pool1d(x, 3, 2))),
    "convolution": ("Conv", {"strides": 1, "padding": "valid", "data_format": "channels_last", "dilation_rate": 2},
                    (X, np.ones((3, 8, 4))),
                    lambda: channels_last(lambda x: torch.conv1d(x, torch.ones(4, 8, 3), dilation=2))),
    "a filter of each channel": (
        "DepthwiseConv", {"strides": 2, "padding": "valid", "data_format": "channels_last", "dilation_rate": 1},
        (X, np.ones((3, 8, 2))),
        lambda: channels_last(lambda x: torch.conv1d(x, torch.ones(16, 1, 3), stride=2, groups=8))),
    "quarter turn": ("Rot90", {"k": 3, "axes": [0, 2]}, (X,), lambda: np.rot90(X, 3, (0, 2))),
    "places in rows": ("TakeAlongAxis", {"axis": 1}, (X, X[:, :2]),
                       lambda: np.take_along_axis(X, X[:, :2].astype(int), 1)),
    "halves": ("Hsplit", {"indices_or_sections": 2}, (X,), lambda: np.hsplit(X, 2)),
    "real spectrum": ("RFFT", {"fft_length": None}, (X,), lambda: [np.fft.rfft(X)] * 2),
}  # fmt: skip
"""By what it is: the operation, its description, its arguments with arrays for tensors, and what computes it."""


def model_of(path: Path, kind: str, config: dict[str, Any], arguments: tuple[Any, ...], results: int) -> Path:
    """Write a model of one operation, whose results are its outputs."""
    layers: list[dict[str, Any]] = []

    def told(value: Any) -> Any:
        if isinstance(value, list):
            return [told(inner) for inner in value]
        if not isinstance(value, np.ndarray):
            return value
        name = f"in{len(layers)}"
        layers.append(layer("InputLayer", name, batch_shape=list(value.shape), dtype="float32"))
        about = {"shape": list(value.shape), "dtype": "float32", "keras_history": [name, 0, 0]}
        return {"class_name": "__keras_tensor__", "config": about}

    node = {"args": [told(value) for value in arguments], "kwargs": {}}
    entries = [[one["config"]["name"], 0, 0] for one in layers]
    op = layer(kind, "op", **config) | {"module": "keras.src.ops.numpy", "inbound_nodes": [node]}
    inner = {"layers": [*layers, op], "input_layers": entries, "output_layers": [["op", 0, i] for i in range(results)]}
    return written(path, {"module": "keras", "class_name": "Functional", "config": inner})


@pytest.mark.parametrize("case", CASES)
def test_an_operation_that_nobody_reads_has_the_shape_of_what_it_returns(case: str, tmp_path: Path) -> None:
    kind, config, arguments, computed = CASES[case]
    made = computed()
    shapes = [tuple(one.shape) for one in made] if isinstance(made, list | tuple) else [tuple(made.shape)]
    graph = tensortide.open(model_of(tmp_path / "x.keras", kind, config, arguments, len(shapes))).graph
    assert [graph.tensors[i].shape for i in graph.ops[-1].outputs] == shapes
    assert not count(graph, strict=True).coverage.missing
    assert graph.meta.decisive == ()


@pytest.mark.parametrize(
    ("kind", "config", "arguments"),
    [
        ("Bincount", {"minlength": 0}, (Y[:, 0],)),
        ("Sum", {"axis": 7, "keepdims": False}, (X,)),
        ("ExpandDims", {"axis": [1, 1]}, (X,)),
        ("GetItem", {}, (X, [0, 0, 0, 0])),
        ("Matmul", {}, (X, X)),
        ("GetItem", {}, (X, [{"class_name": "__numpy__", "config": {"value": [0], "dtype": "int64"}}])),
        ("Split", {"indices_or_sections": 2**40, "axis": 1}, (X,)),
        ("Reshape", {"newshape": "x"}, (X,)),
        ("Tile", {"repeats": [1.5, 1, 1]}, (X,)),
    ],
)
def test_an_operation_whose_shape_is_a_guess_has_no_cost(
    kind: str, config: dict[str, Any], arguments: tuple[Any, ...], tmp_path: Path
) -> None:
    graph = tensortide.open(model_of(tmp_path / "x.keras", kind, config, arguments, 1)).graph
    counted = count(graph)
    assert [(group.name, group.count) for group in counted.coverage.missing] == [(f"keras.ops_{kind}", 1)]
    assert any(f"the shape of its input, {arguments[0].shape}" in text for text in graph.meta.decisive)
    with pytest.raises(TensortideError, match=f"keras.ops_{kind}"):
        count(graph, strict=True)


@pytest.mark.parametrize(
    ("kind", "config", "arguments", "dtypes"),
    [
        ("Argmax", {"axis": 1, "keepdims": False}, (X,), ["int32"]),
        ("Greater", {}, (X, 0.5), ["bool"]),
        ("TopK", {"k": 2, "sorted": True}, (X,), ["float32", "int32"]),
        ("Cast", {"dtype": "float16"}, (X,), ["float16"]),
    ],
)
def test_places_and_truth_values_have_dtypes_of_their_own(
    kind: str, config: dict[str, Any], arguments: tuple[Any, ...], dtypes: list[str], tmp_path: Path
) -> None:
    graph = tensortide.open(model_of(tmp_path / "x.keras", kind, config, arguments, 1)).graph
    assert [graph.tensors[i].dtype for i in graph.ops[-1].outputs] == dtypes


def test_the_shape_of_a_model_in_a_model_is_that_which_the_file_states(tmp_path: Path) -> None:
    def tensor(name: str, shape: list[int]) -> dict[str, Any]:
        return {"class_name": "__keras_tensor__",
                "config": {"shape": shape, "dtype": "int32", "keras_history": [name, 0, 0]}}  # fmt: skip

    def called(one: dict[str, Any], name: str, shape: list[int]) -> dict[str, Any]:
        return one | {"inbound_nodes": [{"args": [tensor(name, shape)], "kwargs": {}}]}

    def functional(name: str, layers: list[dict[str, Any]], first: str, last: str) -> dict[str, Any]:
        inner = {"name": name, "layers": layers, "input_layers": [[first, 0, 0]], "output_layers": [[last, 0, 0]]}
        return {"module": "keras", "class_name": "Functional", "config": inner}

    start = [layer("InputLayer", name, batch_shape=[3, 4], dtype="int32") for name in ("a", "b")]
    bins = layer("Bincount", "bins", minlength=9) | {"module": "keras.src.ops.numpy"}
    inside = functional("inside", [start[0], called(bins, "a", [3, 4])], "a", "bins")
    last = called(layer("Flatten", "flat"), "inside", [3, 9])
    outside = functional("outside", [start[1], called(inside, "b", [3, 4]), last], "b", "flat")
    graph = tensortide.open(written(tmp_path / "x.keras", outside)).graph
    assert [graph.tensors[i].shape for i in graph.ops[-1].outputs] == [(3, 9)]
    assert graph.meta.decisive == ()
