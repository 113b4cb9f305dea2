"""One of every kind of file that is read, and files that look similar: all called ``x``, by content alone."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tensortide.graph import Graph, save
from tensortide.importers.chakra.files import write_chakra
from tensortide.importers.chakra.messages import Chakra, Node, NodeType
from tensortide.importers.dtrlog.write import write_log
from tensortide.reports.snapshot import render_snapshot
from tests.graphs import Builder
from tests.importers import truths
from tests.importers.exported.archives import linear, write
from tests.importers.g10.example import kernels_config, write_trace
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT
from tests.importers.tf1.build import Graph as MetaGraph

__all__ = ["OTHERS", "READ", "make"]

Make: TypeAlias = Callable[[Path], object]

DATA = Path(__file__).parent.parent / "data" / "importers" / "onnx"

KINETO = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "ts": 1.0, "dur": 7.0, "pid": 1, "tid": 1, "args": {}},
]}  # fmt: skip


SHAPED = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 7.0, "pid": 1, "tid": 1, "args": {
        "Input Dims": [[4, 3], [3, 5]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}},
]}  # fmt: skip


EXECUTION = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 1, "nodes": []}


def _step() -> Graph:
    builder = Builder()
    builder.op([builder.storage(64)], [builder.storage(64, birth=0, death=1)])
    return builder.graph()


def _tide(path: Path) -> None:
    save(_step(), path)


def _log(path: Path) -> None:
    write_log(_step(), [5], path)


def _chakra(path: Path) -> None:
    write_chakra(Chakra("0.0.4", (Node(1, "mm", NodeType.COMPUTE), Node(2, "relu", NodeType.COMPUTE, data=(1,)))), path)


def _junk_and_log(path: Path) -> None:
    _log(path)
    path.write_bytes(b"loading ...\n\n" + path.read_bytes())


def _metagraph(path: Path, *, bare: bool = False, version: str = "") -> None:
    graph = MetaGraph()
    if version:
        graph.meta.meta_info_def.tensorflow_version = version
    graph.feed("x", 8, 16)
    graph.variable("W", 16, 32)
    graph.node("y", "MatMul", "x", "W")
    graph.train("y")
    path.write_bytes(graph.meta.graph_def.SerializeToString() if bare else graph.data())


def _saved_model(path: Path, name: str = "mlp") -> None:
    path.mkdir()
    shutil.copyfile(truths.folder() / "savedmodel" / name / "saved_model.pb", path / "saved_model.pb")


def _debug_folder(path: Path) -> None:
    for name, text in (("forward_1.0", FORWARD), ("backward_2.1", BACKWARD)):
        folder = path / "run_2026" / "torchinductor" / f"model__0_{name}"
        folder.mkdir(parents=True)
        (folder / "fx_graph_transformed.py").write_text(text)


def _dump_folder(path: Path) -> None:
    path.mkdir()
    for name, text in (("forward", FORWARD), ("backward", BACKWARD), ("weight", WEIGHT)):
        (path / f"fx_graph_transformed_{name}.py").write_text(text)


def _packed_trace(path: Path) -> None:
    write_trace(path)
    for file in list(path.iterdir()):
        (path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


def _packed(make_file: Make) -> Make:
    def packed(path: Path) -> None:
        make_file(path)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return packed


READ: dict[str, tuple[str, Make]] = {
    "Chakra": ("chakra", _chakra),
    "Chakra, packed": ("chakra", _packed(_chakra)),
    "execution": ("execution", lambda path: path.write_text(json.dumps(EXECUTION))),
    "execution, packed": ("execution", lambda path: path.write_bytes(gzip.compress(json.dumps(EXECUTION).encode()))),
    "tide": ("tide", _tide),
    "log": ("dtrlog", _log),
    "log, packed": ("dtrlog", _packed(_log)),
    "log after junk": ("dtrlog", _junk_and_log),
    "kernels": ("g10", lambda path: path.write_text(kernels_config())),
    "kernels, packed": ("g10", lambda path: path.write_bytes(gzip.compress(kernels_config().encode()))),
    "folder of kernels": ("g10", write_trace),
    "folder of kernels, packed": ("g10", _packed_trace),
    "ONNX": ("onnx", lambda path: path.write_bytes((DATA / "functions.onnx").read_bytes())),
    "dump": ("inductor", lambda path: path.write_text(FORWARD)),
    "dump after imports": ("inductor", lambda path: path.write_text(f"import torch\n# a dump\n\n{WEIGHT}")),
    "dump, packed": ("inductor", lambda path: path.write_bytes(gzip.compress(BACKWARD.encode()))),
    "folder of dumps": ("inductor", _dump_folder),
    "folder of the compiler": ("inductor", _debug_folder),
    "trace": ("profiler", lambda path: path.write_text(json.dumps(KINETO))),
    "trace, packed": ("profiler", lambda path: path.write_bytes(gzip.compress(json.dumps(KINETO, indent=1).encode()))),
    "trace with shapes": ("profiler", lambda path: path.write_text(json.dumps(SHAPED))),
    "JSON lines of times": (
        "profiler",
        lambda path: path.write_text('{"op": 3, "ns": 1200}\n{"op": "INSTRUCTION", "ns": 1}\n'),
    ),
    "memory snapshot": ("memory_snapshot", lambda path: path.write_bytes(render_snapshot(_step()))),
    "memory snapshot, packed": ("memory_snapshot", _packed(lambda path: path.write_bytes(render_snapshot(_step())))),
    "list with a header": ("profiler", lambda path: path.write_text("op,ns\naten.mm,5\n")),
    "list": ("profiler", lambda path: path.write_bytes(b"aten.mm,5.5e3\r\n")),
    "exported program": ("exported", lambda path: write(path, linear())),
    "MetaGraph": ("tf1", _metagraph),
    "MetaGraph, its version alone": ("tf1", lambda path: _metagraph(path, version="2.15.1")),
    "MetaGraph, packed": ("tf1", _packed(_metagraph)),
    "SavedModel": ("tf2", _saved_model),
    "SavedModel with loops": ("tf2", lambda path: _saved_model(path, "recurrent")),
    "TensorFlow Lite": (
        "tflite",
        lambda path: shutil.copyfile(truths.folder() / "tflite" / "mlp.tflite", path),
    ),
    "TensorFlow Lite with a loop": (
        "tflite",
        lambda path: shutil.copyfile(truths.folder() / "tflite" / "lstm.tflite", path),
    ),
    "Keras": ("keras", lambda path: shutil.copyfile(truths.folder() / "keras" / "mlp.keras", path)),
    "GraphDef": ("tf1", lambda path: _metagraph(path, bare=True)),
}
"""By what it is: the importer it belongs to, and how it is made."""

MODEL = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def _model_folder(path: Path) -> None:
    path.mkdir()
    (path / "fx_graph_transformed.py").write_text(MODEL)


OTHERS: dict[str, Make] = {
    "nothing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("\n \n\tabcdefghi\n"),
    "model": lambda path: path.write_text(MODEL),
    "JSON": lambda path: path.write_text('{"format": "tensortide plan", "version": 1, "plan": {}}'),
    "JSON lines": lambda path: path.write_text('{"op": 3, "time": 1200}\n{"op": "INSTRUCTION", "time": 1}\n'),
    "table": lambda path: path.write_text("op,ns,calls\naten.mm,5,1\n"),
    "cut gzip": lambda path: path.write_bytes(gzip.compress(bytes(range(256)) * 99)[:40]),
    "false gzip": lambda path: path.write_bytes(b"\x1f\x8bbroken"),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "pickle": lambda path: path.write_bytes(b"\x80\x04K\x01." * 50),
    "broken ONNX": lambda path: path.write_bytes(b"\x08\x0a\x12\x07pytorch\x1a\x052.13.0" + bytes(64)),
    "packed tide": _packed(_tide),
    "folder": lambda path: path.mkdir(),
    "folder of models": _model_folder,
    "pipe": os.mkfifo,
    "broken link": lambda path: path.symlink_to("nowhere"),
}
"""By what it is: how it is made. No importer reads it."""


def make(kind: str, path: Path) -> Path:
    """Make ``path`` a file or folder of ``kind``."""
    (READ[kind][1] if kind in READ else OTHERS[kind])(path)
    return path
