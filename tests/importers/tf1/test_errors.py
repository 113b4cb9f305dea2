"""Files that are no MetaGraphs, damaged ones, ones that contradict themselves: one error that names file and node."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tensortide.cost import count
from tensortide.expr import symbol
from tensortide.importers.protobuf import tagged
from tensortide.importers.tensorflow.building.convert import graph_of_program
from tensortide.importers.tensorflow.program import MetaGraphError
from tensortide.importers.tensorflow.read import read_program
from tensortide.importers.tensorflow.shapes import TABLE
from tests.importers.tf1.build import FLOAT, INT, Graph, counted_loop, message


def refused(data: bytes) -> str:
    """What is said against a file, nothing if it is read."""
    try:
        read_program(data)
    except MetaGraphError as error:
        said = str(error)
    else:
        said = ""
    assert not said or "<bytes>: " in said
    return said


def small() -> Graph:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.variable("W", 16, 32)
    graph.scalar("steps", 4)
    graph.node("y", "MatMul", "x", "W")
    counted_loop(graph, "loop", "steps", ["y"], lambda states, _: [graph.node("z", "Relu", states[0])])
    graph.train("loop/Exit_1")
    return graph


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"nodes": []}',
        b"node {\n  name: 'x'\n}",
        b"TIDE\x00\x01rest",
        b"\x1f\x8bbroken",
        gzip.compress(b""),
    ],
    ids=["empty", "json", "json2", "pbtxt", "other", "gzip", "empty-gzip"],
)
def test_no_metagraph(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.meta"
    path.write_bytes(data)
    with pytest.raises(MetaGraphError, match=r"model\.meta:? "):
        read_program(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(MetaGraphError, match=r"cannot read .*missing\.meta: No such file"):
        read_program(tmp_path / "missing.meta")


def test_damage_of_a_metagraph_is_told_as_that_of_one() -> None:
    """It is tried as a bare GraphDef, too; what is wrong with it as one is no news."""
    data = small().data()
    assert "(field 1000 is cut off)" in refused(data + tagged(1000, 2, b"ab")[:-1])
    assert "it has no nodes" in refused(b"\x12\x00")


def test_every_form_of_a_file(tmp_path: Path) -> None:
    data = small().data()
    bare = small().meta.graph_def.SerializeToString()
    (tmp_path / "g.meta.gz").write_bytes(gzip.compress(data))
    program = read_program(data)
    assert read_program(tmp_path / "g.meta.gz") == read_program(gzip.compress(data)) == program
    assert [node.name for node in read_program(bare, fetches=["loop/Exit_1:0"]).nodes] == [
        n.name for n in program.nodes
    ]


def test_truncated_anywhere() -> None:
    data = small().data()
    for length in range(0, len(data), 7):
        refused(data[:length])


def test_changed_anywhere() -> None:
    """Whatever bytes and edges are changed, it is read or refused, never a traceback."""
    data = small().data()
    chance = random.Random(3)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(3):
            changed[chance.randrange(len(data))] = chance.randrange(256)
        refused(bytes(changed))
    for _ in range(300):
        meta = message("MetaGraphDef").FromString(data)
        nodes = meta.graph_def.node
        for _ in range(2):
            node = chance.choice(nodes)
            if node.input and chance.random() < 0.5:
                del node.input[chance.randrange(len(node.input))]
            else:
                node.input.append(chance.choice(nodes).name)
        refused(meta.SerializeToString())


def test_missing_input() -> None:
    graph = small()
    graph.node("lost", "Relu", "nowhere")
    graph.train("lost")
    with pytest.raises(MetaGraphError, match=r"node lost: its input 'nowhere' is not in the file"):
        read_program(graph.data())


def test_missing_root() -> None:
    with pytest.raises(MetaGraphError, match="there is no node 'nothing'"):
        read_program(small().data(), fetches=["nothing"])


def test_two_nodes_of_one_name() -> None:
    graph = small()
    graph.node("y", "Relu", "x")
    with pytest.raises(MetaGraphError, match="node y: two nodes"):
        read_program(graph.data())


def test_an_exit_outside_of_loops() -> None:
    graph = small()
    graph.node("out", "Exit", "y")
    graph.train("out")
    with pytest.raises(MetaGraphError, match="node out: it leaves a loop"):
        read_program(graph.data())


def read_or_refused(kind: str) -> None:
    """An op without its inputs and attributes is read or refused in one line, never with a traceback."""
    for inputs in ((), ("x",), ("x", "W", "x"), ("x:3",)):
        graph = small()
        graph.node("odd", kind, *inputs)
        graph.node("after", "Relu", "odd")
        graph.train("after")
        if not refused(graph.data()):
            count(graph_of_program(read_program(graph.data())))


@pytest.mark.parametrize("kind", ["IdentityN", "TensorArrayWriteV3", "Const", "Exit", "While", "If", "Unheard"])
def test_ops_without_their_inputs_and_attributes(kind: str) -> None:
    read_or_refused(kind)


@pytest.mark.slow
def test_all_ops_without_their_inputs_and_attributes() -> None:
    for kind in sorted(TABLE):
        read_or_refused(kind)


def test_a_cycle_of_control_edges() -> None:
    graph = small()
    graph.node("a", "Relu", "x", "^b")
    graph.node("b", "Relu", "a")
    graph.train("b")
    with pytest.raises(MetaGraphError, match="cycle that no NextIteration closes"):
        read_program(graph.data())


def test_a_long_chain_is_read() -> None:
    graph = small()
    last = "x"
    for i in range(700):
        graph.feed(f"x{i}", -1, 16)
        last = graph.node(f"sum{i}", "AddN", last, f"x{i}", T=FLOAT)
    graph.train(last)
    assert read_program(graph.data()).hints.keys() == {"b", "h"}


def test_a_function_that_is_missing() -> None:
    graph = small()
    graph.node("call", "PartitionedCall", "x")
    graph.train("call")
    with pytest.raises(MetaGraphError, match="node call: it calls the function"):
        read_program(graph.data())


def test_unknown_presets_and_patterns() -> None:
    data = small().data()
    with pytest.raises(MetaGraphError, match="no preset 'alexnet'"):
        read_program(data, preparation="catamount", preset="alexnet")
    with pytest.raises(MetaGraphError, match="regular expression"):
        read_program(data, bind={"W(": ["h"]})
    with pytest.raises(MetaGraphError, match="regular expression"):
        read_program(data, preparation="catamount", drop=["("])
    with pytest.raises(MetaGraphError, match="no node is named 'V'"):
        read_program(data, bind={"V": ["h"]})


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        ({"W": ["a"]}, "1 bound sizes and 2 dimensions"),
        ({"W": ["a", "a"]}, "node W"),
        ({"W": ["2*a", 31]}, "node W"),
        ({"x": ["b", "f"], "W": ["h", "n"]}, "node y: .*f and h, both as bound by the caller"),
    ],
    ids=["rank", "two values", "number", "two names"],
)
def test_bindings_that_contradict(bind: dict[str, list[str | int]], said: str) -> None:
    with pytest.raises(MetaGraphError, match=said):
        read_program(small().data(), bind=bind)


def test_values_that_do_not_fit_their_constant() -> None:
    graph = Graph()
    proto = message("TensorProto")(dtype=3, int_val=[1, 2, 3, 4])
    proto.tensor_shape.dim.add(size=2)
    graph.node("c", "Const", dtype=INT, value=proto)
    graph.feed("x", 6)
    graph.node("y", "Reshape", "x", "c", T=FLOAT)
    graph.train("y")
    assert read_program(graph.data()).nodes[-1].outputs[0].shape == (symbol("y:0::elements"),)


def test_no_library_for_protocol_buffers_is_needed(tmp_path: Path) -> None:
    graph = Graph()
    graph.feed("x", 8, 16)
    graph.node("y", "Relu", "x")
    graph.train("y")
    (tmp_path / "x.meta").write_bytes(graph.data())
    code = f"import sys, tensortide; tensortide.open({str(tmp_path / 'x.meta')!r}); print('google' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert answer.stdout.strip() == "False"
