"""Single assignment: what the checker of ONNX refuses for a name of two origins is refused, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

import tensortide
from tensortide.errors import TensortideError
from tests.importers.onnx.build import BOOL, FLOAT, INT64, graph, model, node, port, stored
from tests.importers.onnx.models import OWN
from tests.importers.onnx.test_damage import nodes_of

W = stored("w", FLOAT, [4, 4], 1.0)
X = {"x": (FLOAT, [2, 4])}
ENDS = "a name stands for one value"


def with_if(then: Any, otherwise: Any = None) -> Any:
    """A conditional between two arms, after a sum ``s`` and a condition ``cond``."""
    arms = {"then_branch": then, "else_branch": otherwise or graph([node("Relu", "x", "b")], [], ["b"])}
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Cast", "s", "cond", to=BOOL),
        node("If", "cond", "y", **arms),
    ]
    return model(nodes, X, "y", [W])


def with_loop(*nodes: Any, state: str = "s", result: str = "t", first: str = "i") -> Any:
    """A loop of three trips, whose body has ``nodes``."""
    ports = [port(first, INT64), port("c", BOOL), port(state, FLOAT, [2, 4])]
    body = graph([*nodes, node("Identity", "c", "g")], ports, ["g", result])
    kept = [W, stored("m", INT64, [], 3), stored("yes", BOOL, [], True)]
    return model([node("Loop", "m yes x", "y", body=body, name="loop")], X, "y", kept)


def with_function(inputs: Sequence[str], nodes: Sequence[Any], outputs: str = "b", times: int = 1) -> Any:
    """A call of a function of its own."""
    opsets = [onnx.helper.make_opsetid("", 17)]
    made = onnx.helper.make_function("own", "F", inputs, [outputs], nodes, opsets)
    call = node("F", " ".join(["x"] * len(inputs)), "y", domain="own")
    found = model([call], X, "y", functions=[made] * times)
    found.opset_import.append(onnx.helper.make_opsetid("own", 1))
    return found


def changed(made: Any, **lists: Sequence[Any]) -> Any:
    """The model with more entries in lists of its graph."""
    for name, entries in lists.items():
        getattr(made.graph, name).extend(entries)
    return made


def omitted(made: Any, *places: int) -> Any:
    """The model without these outputs of its first node."""
    for place in places:
        made.graph.node[0].output[place] = ""
    return made


SPARSE = onnx.helper.make_sparse_tensor(stored("w", FLOAT, [3], 1.0), stored("i", INT64, [3], [0, 5, 9]), [4, 4])
LSTM = [stored("wx", FLOAT, [1, 24, 5]), stored("wh", FLOAT, [1, 24, 6])]
LAST = omitted(model([node("LSTM", "x wx wh", "- - h", hidden_size=6)], {"x": (FLOAT, [7, 3, 5])}, "h", LSTM), 0, 1)
CASES: dict[str, Any] = {
    "two nodes": model([node("Relu", "x", "y", name="a"), node("MatMul", "x w", "y", name="b")], X, "y", [W]),
    "two outputs of a node": model([node("Split", "x", "y y", axis=0, num_outputs=2)], X, "y", opset=18),
    "node and input": model([node("Relu", "x", "x"), node("Relu", "x", "y")], X, "y"),
    "node and stored": model([node("Relu", "x", "w"), node("Relu", "w", "y")], X, "y", [W]),
    "input with a default": model([node("MatMul", "x w", "y")], {**X, "w": (FLOAT, [4, 4])}, "y", [W]),
    "input twice": changed(model([node("Relu", "x", "y")], X, "y"), input=[port("x", FLOAT, [2, 4])]),
    "stored twice": model([node("MatMul", "x w", "y")], X, "y", [W, W]),
    "stored, and sparse": changed(model([node("MatMul", "x w", "y")], X, "y", [W]), sparse_initializer=[SPARSE]),
    "output twice": model([node("Relu", "x", "y")], X, "y y"),
    "names of nodes": model([node("Relu", "x", "y", name="a"), node("Relu", "y", "z", name="a")], X, "z"),
    "omitted outputs": LAST,
    "arm and value before": with_if(graph([node("Relu", "x", "s")], [], ["s"])),
    "arm and input": with_if(graph([node("Relu", "w", "x")], [], ["x"])),
    "arm and stored": with_if(graph([node("Relu", "x", "w")], [], ["w"])),
    "arm twice": with_if(graph([node("Relu", "x", "a"), node("MatMul", "x w", "a")], [], ["a"])),
    "both arms": with_if(graph([node("Relu", "x", "a")], [], ["a"]), graph([node("Relu", "x", "a")], [], ["a"])),
    "arm and output of its If": with_if(graph([node("Relu", "x", "y")], [], ["y"])),
    "stored in an arm and outside": with_if(graph([node("MatMul", "x w", "a")], [], ["a"], [W])),
    "state of a body and input": with_loop(node("MatMul", "x w", "t"), state="x"),
    "state of a body, and node": with_loop(node("MatMul", "s w", "s"), result="s"),
    "input of a body twice": with_loop(node("MatMul", "s w", "t"), first="c"),
    "body and value before": with_loop(node("MatMul", "s w", "m"), result="m"),
    "function": with_function(["a"], [node("Relu", "a", "b")]),
    "node of a function twice": with_function(["a"], [node("Relu", "a", "b"), node("Neg", "a", "b")]),
    "node of a function and input": with_function(["a"], [node("Relu", "a", "a")], "a"),
    "input of a function twice": with_function(["a", "a"], [node("Relu", "a", "b")]),
    "names in a function and outside": with_function(["x"], [node("Relu", "x", "y")], "y"),
    "two functions": with_function(["a"], [node("Relu", "a", "b")], times=2),
}


def declared(body: Any) -> None:
    """Declare the outputs of graphs, as the checker wants them."""
    for output in body.output:
        if not output.HasField("type"):
            output.CopyFrom(
                port(output.name, BOOL if output.name == "g" else FLOAT, [] if output.name == "g" else "nm")
            )
    for inner in (attribute.g for each in body.node for attribute in each.attribute if attribute.HasField("g")):
        declared(inner)


def checker_refuses(made: Any) -> str:
    """The reason for which the checker of ONNX refuses a model; empty if it does not."""
    copy = onnx.ModelProto.FromString(made.SerializeToString())
    copy.ir_version = min(copy.ir_version, 9)
    declared(copy.graph)
    try:
        onnx.checker.check_model(copy)
    except onnx.checker.ValidationError as error:
        return str(error)
    return ""


def refused(made: Any) -> str:
    """The error of ours; empty if there is none."""
    try:
        tensortide.open(made)
    except TensortideError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", CASES)
def test_a_model_is_refused_where_the_checker_of_onnx_refuses_it(case: str) -> None:
    ours, theirs = refused(CASES[case]), checker_refuses(CASES[case])
    assert bool(ours) == bool(theirs), (ours, theirs)
    assert not ours or ours.endswith(ENDS) or "two functions own::F" in ours
    assert "\n" not in ours


def test_the_message_names_both_origins(tmp_path: Path) -> None:
    path = tmp_path / "twice.onnx"
    path.write_bytes(CASES["two nodes"].SerializeToString())
    assert refused(path) == (f"{path}: y is an output of node a (Relu) and an output of node b (MatMul): {ENDS}")
    assert "x is an input and an output of node x (Relu)" in refused(CASES["node and input"])
    assert "node y (If): s is an output of node s (ReduceSum) and an output of node s (Relu)" in refused(
        CASES["arm and value before"]
    )
    assert "function own::F: a is an input and an input" in refused(CASES["input of a function twice"])


@pytest.mark.parametrize("path", sorted(OWN.glob("[!b]*.onnx")), ids=lambda path: path.stem)
def test_names_exchanged_at_random_are_refused_where_the_checker_refuses_them(path: Path) -> None:
    data = path.read_bytes()
    for seed in range(4):
        draw = random.Random(f"{path.stem}{seed}")
        made = onnx.ModelProto.FromString(data)
        nodes = [each for each in nodes_of(made) if each.output]
        one, other = draw.choice(nodes), draw.choice(nodes)
        one.output[draw.randrange(len(one.output))] = draw.choice([*other.output, *other.input])
        theirs, ours = checker_refuses(made), refused(made)
        if ours.endswith(ENDS):
            assert theirs
        if "single static assignment" in theirs:
            assert ours.endswith(ENDS), (ours, theirs)
