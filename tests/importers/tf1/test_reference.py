"""The published graphs: what is in the files, which nodes are kept, and the published formulas of every op's sizes."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensortide.expr import Expr, parse, symbol, total
from tensortide.importers.tensorflow.optypes import VARIABLES
from tensortide.importers.tensorflow.program import Node, Program
from tensortide.importers.tensorflow.read import read_program
from tensortide.importers.tensorflow.reading.raw import load
from tests.importers.tf1.build import underived, variables
from tests.marks import some_slow

PRESETS = {"word_lm": "word_lm", "word2vec": "word2vec", "resnet18": "resnet"}
GRAPHS = (
    "simple_while",
    "simple_example",
    "static_unroll",
    "dynamic_rnn",
    "dynamic_rnn_with_backprop",
    "word_lm",
    "word2vec",
    "resnet18",
    "bert_cased_L12",
)
BYTES = {"float32": 4, "int32": 4, "int64": 8, "bool": 1, "uint8": 1}
SKIP_GRAM = "Model/SkipGramSampler/"
BINDINGS: dict[str, dict[str, list[str | int]]] = {
    "resnet18": {"input": ["b", "H", "W", 3]},
    "word2vec": {
        f"{SKIP_GRAM}strided_slice/stack": [0, "w"],
        f"{SKIP_GRAM}strided_slice/stack_1": [0, "-w"],
        f"{SKIP_GRAM}Tile(_1)?/multiples": [1, "n"],
        f"{SKIP_GRAM}Const": ["2*w"],
        f"{SKIP_GRAM}Const_2": ["n"],
        ".*/LogUniformCandidateSampler": ["k"],
    },
    "bert_cased_L12": {
        "Placeholder.*": ["b", "s"],
        ".*/(query|key|value)/kernel": ["a*d", "a*d"],
        ".*/intermediate/dense/kernel": ["a*d", "I"],
        "bert/embeddings/position_embeddings": ["P", "a*d"],
        "bert/embeddings/word_embeddings": ["v", "a*d"],
        ".*/self/Reshape(_[12])?/shape": ["b", "s", "a", "d"],
        "bert/embeddings/Reshape(_2)?/shape": ["b", "s", "a*d"],
        "bert/encoder/Reshape/shape": ["b", 1, "s"],
        "bert/encoder/Reshape_([2-9]|1.)/shape": ["b", "s", "a*d"],
    },
}


@pytest.fixture(scope="session")
def published(reference: Path) -> Path:
    return reference / "catamount"


def read(published: Path, name: str, **options: Any) -> Program:
    return read_program(published / "graphs" / f"{name}.meta.gz", **options)


def shapes(node: Node) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    for spec in node.outputs:
        assert spec.shape is not None, node.name
        yield spec.dtype, spec.shape


def test_files(published: Path) -> None:
    for known in json.loads((published / "metagraph_stats.json").read_text()):
        path = published / "graphs" / f"{known['graph']}.meta.gz"
        if not path.exists():
            continue
        graph = load(path)
        types = Counter(node.type for node in graph.nodes.values())
        assert len(graph.nodes) == known["nodes"]
        assert len(types) == known["op_types"]
        assert all(types[kind] == count for kind, count in known["top"])
        assert sum(len(node.control) for node in graph.nodes.values()) == known["ctrl_deps"]
        assert set(graph.collections) == set(known["collections"])
        assert graph.version == known["tf"]
        stored = [node.attributes.get("_output_shapes") for node in graph.nodes.values()]
        dims = [shape for shapes in stored if isinstance(shapes, tuple) for shape in shapes]
        assert sum(s is not None for s in stored) == known["output_shapes_attr"]
        assert sum(shape is None for shape in dims) == known["unknown_rank_outs"]
        assert sum(n == -1 for shape in dims if isinstance(shape, tuple) for n in shape) == known["dyn_dims"]


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nodes_that_are_kept(published: Path, large: bool) -> None:
    rows = [json.loads(line) for line in (published / "import_unbound.jsonl").read_text().splitlines()]
    chosen = [row for row in rows if (row["graph"] in ("resnet18", "bert_cased_L12")) == large]
    assert chosen
    for known in chosen:
        program = read(published, known["graph"], preparation="catamount")
        splits = sum(node.type == "Split" for node in program.nodes)
        # there, a loop is an op too, and a split has a constant for its sizes
        assert len(program.nodes) + len(program.loops) + splits == known["ops"]
        assert len(program.loops) == known["control_blocks"]
        assert len(variables(program)) == known["variables"]
        assert sum(node.type == "Placeholder" for node in program.nodes) == known["placeholders"]


PREPARED = [(name, preparation) for name in GRAPHS for preparation in ("default", "catamount")]


@pytest.mark.parametrize(("name", "preparation"), some_slow(PREPARED, {*PREPARED[1::4], *PREPARED[2::4]}))
def test_no_bindings_are_needed(published: Path, name: str, preparation: Any) -> None:
    begin = time.process_time()
    program = read(published, name, preparation=preparation, preset=PRESETS.get(name, "none"))
    assert time.process_time() - begin < 2
    assert underived(program) == ()
    assert not any(name.endswith("::elements") for name in program.hints)
    assert len(program.hints) <= 6
    assert all("the file says" not in note for note in program.notes)


def _path(published: Path, name: str) -> Path:
    return published / "graphs" / f"{name}.meta.gz"


def test_word_lm_is_the_training_copy(published: Path) -> None:
    program = read(published, "word_lm")
    assert len(program.nodes) == 991
    assert sum(node.type == "MatMul" for node in program.nodes) == 9
    assert {str(loop.trips) for loop in program.loops} == {"s"}
    assert sorted(loop.gradient_of for loop in program.loops) == [-1, -1, 0, 1]
    assert program.hints["h"] == 2004
    assert program.hints["v"] == 10004
    parameters = total(
        math.prod(shape) for node in program.nodes if node.name in program.trainable for _, shape in shapes(node)
    )
    assert parameters == parse("16*h**2 + 2*h*v + 8*h + v")


def test_every_op_of_word_lm(published: Path) -> None:
    """The bytes of each op's outputs and the trips of its loop, as formulas."""
    program = read(published, "word_lm", preparation="catamount", preset="word_lm")
    names = {"hidden_dim": "h", "vocab_size": "v", "sequence_length": "s", "subbatch_size": "b"}
    nodes = {node.name: node for node in program.nodes}
    checked = 0
    with (published / "golden" / "word_lm_op_by_op.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["op"].endswith("split_size_splits"):
                continue
            node = nodes[row["op"]]
            footprint = parse(row["foot_sym"]).subs({long: symbol(short) for long, short in names.items()})
            trips = 1 if node.loop < 0 else program.loops[node.loop].trips
            assert (trips == symbol("s")) is (row["parent"] != "graph")
            if footprint != 0 and node.type != "LoopCond":
                assert (
                    total(BYTES[dtype] * math.prod(shape, start=symbol("s") ** 0) for dtype, shape in shapes(node))
                    == footprint
                )
                checked += 1
    assert len(nodes) == 1068
    assert checked > 500


FORMULAS = [("word_lm", {}), ("word2vec", {}), ("resnet18", {"n": "cls"}), ("bert_cased_L12", {})]


@pytest.mark.parametrize(("name", "renamed"), FORMULAS, ids=[name for name, _ in FORMULAS])
def test_published_formulas(published: Path, name: str, renamed: dict[str, str]) -> None:
    """Parameters, fed bytes and footprint, which need no cost rule beyond which ops have no output of their own."""
    known = json.loads((published / "formulas.json").read_text())[name]["formulas"]
    program = read(
        published, name, preparation="catamount", preset=PRESETS.get(name, "none"), bind=BINDINGS.get(name, {})
    )
    expected = {key: parse(text).subs({"T": symbol("s"), "cin": 3}) for key, text in known.items()}
    assert _parameters(program, name).subs({k: symbol(v) for k, v in renamed.items()}) == expected["parameters"]
    fed = total(_bytes(node) for node in program.nodes if node.type == "Placeholder")
    assert fed == expected["io"]
    splits = sum(node.type == "Split" for node in program.nodes)
    footprint = total(_footprint(program, node) for node in program.nodes) + 4 * splits
    assert footprint.subs({k: symbol(v) for k, v in renamed.items()}) == expected["footprint"]


def _parameters(program: Program, name: str) -> Expr:
    skipped = ("Momentum", "EMA") if name == "resnet18" else ()
    counted = [n for n in program.nodes if n.type in VARIABLES and not any(part in n.name for part in skipped)]
    return total(math.prod(shape, start=symbol("s") ** 0) for node in counted for _, shape in shapes(node))


def _bytes(node: Node) -> Expr:
    return total(BYTES.get(dtype, 0) * math.prod(shape, start=symbol("s") ** 0) for dtype, shape in shapes(node))


FREE = frozenset(
    ["Identity", "StopGradient", "PreventGradient", "NoOp", "Enter", "Exit", "Switch", "Merge", "NextIteration"]
    + ["StackV2", "StackPushV2", "StackPopV2", "CheckNumerics", "ScatterSub", "ApplyGradientDescent", "ApplyMomentum"]
    + [f"TensorArray{kind}V3" for kind in ("", "Grad", "Read", "Write", "Gather", "Scatter", "Size")]
    + ["GatherNd", "FIFOQueueV2", "QueueSizeV2", "QueueDequeueV2", "ScalarSummary", "MergeSummary"]
)


def _footprint(program: Program, node: Node) -> Expr:
    zero = symbol("s") * 0
    if node.type in FREE:
        return zero
    own = _bytes(node)
    if node.type == "LoopCond":
        own = zero + 1
    if node.type in ("Softmax", "LogSoftmax"):
        own = 2 * own
    return own * program.loops[node.loop].trips if node.loop >= 0 else own


@pytest.mark.slow
def test_the_same_in_every_process(published: Path) -> None:
    code = (
        "import sys, msgspec; from tensortide.importers.tensorflow.read import read_program;"
        "print(msgspec.json.encode(read_program(sys.argv[1]), enc_hook=str).decode())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, str(_path(published, "bert_cased_L12"))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1
