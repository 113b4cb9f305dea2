"""Flat buffers, read without TensorFlow: their products are those derived by hand, and so are their loops."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import WorkloadError
from tensortide.importers.tflite.buffer import FlatBufferError
from tensortide.importers.tflite.convert import Conversion
from tensortide.importers.tflite.schema import read_model
from tests.importers import truths

LEARNED = {"convs": 12984, "convs_int8": 12984, "lstm": 3060, "mlp": 11392, "mlp_dynamic_range": 11392}
"""Elements of the weights that the files have: biases of zero are left out or stored once by who wrote them."""


def path_of(name: str) -> Path:
    return truths.folder() / f"{name}.tflite"


@pytest.mark.parametrize("name", truths.named("tflite"))
def test_products_are_those_derived_by_hand(name: str) -> None:
    graph = tensortide.open(path_of(name)).graph
    assert count(graph, strict=True).total.macs == truths.truth()[name]["macs"]
    assert truths.learned(graph) == LEARNED[name.rpartition("/")[2]]


@pytest.mark.parametrize("name", truths.named("tflite"))
def test_ops_are_those_that_the_file_lists(name: str) -> None:
    record, graph = truths.truth()[name], tensortide.open(path_of(name)).graph
    listed = dict(record["nodes"]["by_op"])
    loops = listed.pop("WHILE", 0)
    found = [graph.calls[op.call].op for op in graph.ops]
    assert {op: found.count(f"tflite.{op}") for op in listed} == listed
    assert len(graph.loops) == loops


def test_trips_are_read_from_the_condition() -> None:
    (loop,) = tensortide.open(path_of("tflite/lstm")).graph.loops
    assert (loop.trips, loop.assumed) == (truths.truth()["tflite/lstm"]["trips"][0], False)


def test_trips_that_nothing_tells_are_assumed_or_given(tmp_path: Path) -> None:
    data = bytearray(path_of("tflite/lstm").read_bytes())
    # the counter's bound, a constant of its own, becomes a text: no number to compare with
    model = read_model(path_of("tflite/lstm"))
    bound = next(tensor for tensor in model.subgraphs[0].tensors if tensor.name.endswith("Max"))
    data[bound.span[0] - 4 : bound.span[0]] = struct.pack("<I", 1)
    file = tmp_path / "x.tflite"
    file.write_bytes(data)
    step = tensortide.open(file)
    (name,) = step.symbols
    assert step.graph.loops[0].assumed
    given = tensortide.open(file, hyperparameters={name: 12}).graph
    assert (given.loops[0].trips, given.loops[0].assumed) == (12, False)
    assert count(given).total.macs == truths.truth()["tflite/lstm"]["macs"]


def test_integer_weights_take_a_byte() -> None:
    sizes = {}
    for name in ("convs", "convs_int8"):
        graph = tensortide.open(path_of(f"tflite/{name}")).graph
        sizes[name] = sum(storage.nbytes for storage in graph.storages if storage.role == "parameter")
    assert sizes["convs"] == 4 * LEARNED["convs"]
    biases = 8 + 16
    assert sizes["convs_int8"] < LEARNED["convs"] + 4 * 2 * biases


def test_the_same_constant_is_stored_once() -> None:
    graph = tensortide.open(path_of("tflite/convs")).graph
    spans = [named.tensor for named in graph.named]
    assert len(spans) == len(set(spans))


def test_a_symbol_that_there_is_not_is_refused() -> None:
    with pytest.raises(WorkloadError, match="has no symbol 'batch'"):
        tensortide.open(path_of("tflite/mlp"), hyperparameters={"batch": 2})


@pytest.mark.parametrize("size", [9, 40, 400, 20_000])
def test_a_cut_file_is_one_error(tmp_path: Path, size: int) -> None:
    file = tmp_path / "x.tflite"
    file.write_bytes(path_of("tflite/mlp").read_bytes()[:size])
    with pytest.raises(FlatBufferError, match=f"^{file}: ") as caught:
        tensortide.open(file)
    assert "\n" not in str(caught.value)


def test_a_loop_that_is_its_own_body_is_refused() -> None:
    model = read_model(path_of("tflite/lstm"))
    main, condition, body = model.subgraphs
    again = next(op for op in main.operators if op.name == "WHILE")._replace(inputs=body.inputs, outputs=body.outputs)
    endless = model._replace(subgraphs=(main, condition, body._replace(operators=(again, *body.operators))))
    with pytest.raises(FlatBufferError, match="call each other without end"):
        Conversion(endless, {}).graph("endless")
