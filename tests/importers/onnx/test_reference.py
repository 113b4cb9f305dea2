"""Models whose true cost is known are counted to the last digit; malformed and hostile files are errors, or counted."""

from __future__ import annotations

import builtins
import io
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import GraphError, UnknownCost
from tensortide.graph import Role
from tests.importers.onnx.models import bad, model, truth

TRUTH = truth()
COPIES = {"torch_dynamo_gpt2_2l": 30144, "tf2onnx_convs": 1086}
"""Parameters that are in the file, where the exporter wrote a tied weight twice or left out biases of zeros."""
SYMBOLS = {"tf2onnx_convs": {"unk__47": 2}, "loop_from_input": {"trips": 7}}


def read(name: str) -> Any:
    return tensortide.open(model(name), hyperparameters=SYMBOLS.get(name, TRUTH[name].get("at")))


@pytest.mark.parametrize("name", TRUTH)
def test_products_and_parameters_are_those_derived_by_hand(name: str) -> None:
    counted, known = count(read(name).graph, strict=True), TRUTH[name]
    assert counted.total.macs == known["macs"]
    assert counted.sizes.parameters == COPIES.get(name, known["parameters"]["learned"])
    stored = known["parameters"]["stored"]
    if name not in COPIES:
        assert counted.sizes.parameters + counted.sizes.buffers == stored["elements"]
        assert counted.sizes.parameter_bytes == known["parameters"]["learned_bytes"]


@pytest.mark.parametrize("name", TRUTH)
def test_outputs_have_the_shapes_of_a_run(name: str) -> None:
    shapes = TRUTH[name].get("output_shapes")
    if not isinstance(shapes, list):
        return  # onnxruntime refuses this file
    graph = read(name).graph
    made = [storage for storage in graph.storages if storage.role is Role.OUTPUT]
    of = {graph.tensors[i].storage: tuple(map(int, graph.tensors[i].shape)) for op in graph.ops for i in op.outputs}
    found = {of[graph.storages.index(storage)] for storage in made}
    assert found == {tuple(shape) for shape in shapes}


def test_every_node_is_an_op() -> None:
    for name, known in TRUTH.items():
        assert len(read(name).graph) >= known["nodes"]["top_level"]


def test_symbolic_dimensions_stay_symbols() -> None:
    found = tensortide.open(model("functions"))
    assert found.symbols == {"n": 1}
    assert "n = 1" in found.graph.meta.assumptions[1]
    counted = count(found.graph)
    assert str(tensortide.expr.expr_of(counted.total.macs)) == "1440*n"


def test_trips_that_an_input_says_are_a_guess_until_they_are_given() -> None:
    guessed = tensortide.open(model("loop_from_input"))
    assert [loop.assumed for loop in guessed.graph.loops] == [True]
    assert str(tensortide.expr.expr_of(count(guessed.graph).total.macs)) == "256*trips"
    given = tensortide.open(model("loop_from_input"), hyperparameters={"trips": 7})
    assert [loop.assumed for loop in given.graph.loops] == [False]
    assert count(given.graph).total.macs == 7 * 256


def test_arms_of_a_conditional_exclude_each_other() -> None:
    low, high = count(read("if_branches").graph).range
    known = TRUTH["if_branches"]["branches"]
    assert low.macs == known["then"] + known["common"]
    assert high.macs == known["else"] + known["common"]


def test_doubling_functions_are_priced_once_and_multiplied() -> None:
    graph = tensortide.open(bad("function_bomb")).graph
    assert count(graph).total.macs == 1 << 65
    assert len(graph) < 100


def test_an_op_of_a_foreign_domain_is_unknown_by_its_name() -> None:
    graph = tensortide.open(bad("unknown_op")).graph
    counted = count(graph)
    assert counted.total.macs == 64
    assert [group.name for group in counted.coverage.missing] == ["foreign.domain::RunShell"]
    with pytest.raises(UnknownCost, match="RunShell"):
        count(graph, strict=True)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("cycle", "node a .*a cycle"), ("negative_dims", r"Neg has the shape \(-8, 4\)"), ("length_overflow", "damaged"),
     ("huge_dims", "more memory than any machine")],
)  # fmt: skip
def test_a_malformed_file_is_one_error_that_names_the_fault(name: str, fault: str) -> None:
    with pytest.raises(GraphError, match=fault) as raised:
        tensortide.open(bad(name))
    assert str(bad(name)) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_file_but_the_model_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    plain = io.open

    def watched(file: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(str(file))
        return plain(file, *args, **kwargs)

    tensortide.open(model("functions"))  # imports what is imported on use
    monkeypatch.setattr(builtins, "open", watched)
    monkeypatch.setattr(io, "open", watched)
    read_bytes = Path.read_bytes

    def watched_bytes(path: Path) -> bytes:
        opened.append(str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", watched_bytes)
    for path in (bad("external_traversal"), model("external_data")):
        opened.clear()
        tensortide.open(path)
        assert set(opened) == {str(path)}
