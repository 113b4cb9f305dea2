"""Archives of torch.export written by hand: a linear layer in the current layout, and parts of it changed."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram, save

from tensortide.cost import count
from tensortide.graph import Graph
from tensortide.importers.door import open as open_step

__all__ = ["document", "linear", "macs", "named", "node", "opened", "saved", "tensor", "write"]


STACK = "r,,m.Net;f,fc,m.Linear"


def tensor(*sizes: int | str, dtype: int = 7, trains: bool = False) -> dict[str, Any]:
    """The type of a tensor; a text among the sizes is an expression, which is 3 in the example."""
    dims = [{"as_expr": {"expr_str": size, "hint": {"as_int": 3}}} if isinstance(size, str) else {"as_int": size}
            for size in sizes]  # fmt: skip
    steps: list[dict[str, Any]] = []
    stride = 1
    for size in reversed(sizes):
        steps.insert(0, {"as_int": stride})
        stride *= 3 if isinstance(size, str) else size
    return {
        "dtype": dtype, "sizes": dims, "strides": steps, "storage_offset": {"as_int": 0}, "layout": 7,
        "device": {"type": "cpu", "index": None}, "requires_grad": trains,
    }  # fmt: skip


def named(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def node(target: str, inputs: dict[str, Any], *outputs: str, **metadata: str) -> dict[str, Any]:
    """A call; ``inputs`` are tensors by name, or arguments as the format has them."""
    given = [{"name": key, "arg": named(value) if isinstance(value, str) else value, "kind": 1}
             for key, value in inputs.items()]  # fmt: skip
    return {"target": target, "inputs": given, "outputs": [named(name) for name in outputs], "metadata": metadata}


def linear(batch: int | str = 4) -> dict[str, Any]:
    """A program of one linear layer from 8 to 5 features."""
    return document(
        [node("torch.ops.aten.linear.default", {"input": "x", "weight": "p_w"}, "y", nn_module_stack=STACK)],
        {"p_w": tensor(5, 8, trains=True), "x": tensor(batch, 8), "y": tensor(batch, 5)},
    )  # fmt: skip


def document(nodes: list[dict[str, Any]], types: dict[str, Any], *, parameter: str = "fc.weight") -> dict[str, Any]:
    """A program from ``x`` and the parameter ``p_w`` to ``y``."""
    graph = {
        "inputs": [named("p_w"), named("x")], "outputs": [named("y")], "nodes": nodes, "tensor_values": types,
        "sym_int_values": {}, "sym_bool_values": {},
    }  # fmt: skip
    inputs = [
        {"parameter": {"arg": {"name": "p_w"}, "parameter_name": parameter}},
        {"user_input": {"arg": named("x")}},
    ]
    signature = {"input_specs": inputs, "output_specs": [{"user_output": {"arg": named("y")}}]}
    return {
        "graph_module": {"graph": graph, "signature": signature, "module_call_graph": []},
        "schema_version": {"major": 8, "minor": 20}, "opset_version": {"aten": 10}, "range_constraints": {},
        "torch_version": "2.13.0",
    }  # fmt: skip


def write(path: Path, program: object, *, folder: str = "net", **parts: str | bytes) -> Path:
    """Write an archive of ``program`` (a document, or bytes) and further ``parts``, named with ``__`` for ``/``."""
    text = program if isinstance(program, bytes) else json.dumps(program).encode()
    contents: dict[str, str | bytes] = {
        "models/model.json": text, "archive_format": "pt2", "archive_version": "0",
        **{name.replace("__", "/"): part for name, part in parts.items()},
    }  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in contents.items():
            archive.writestr(f"{folder}/{name}", part)
    return path


def saved(program: ExportedProgram, path: Path) -> Path:
    """The file that PyTorch writes of a program."""
    save(program, path)
    return path


def opened(target: object, **options: Any) -> Graph:
    """The Graph of a program."""
    return open_step(target, **options).graph


def macs(target: object, **options: Any) -> int:
    """The multiply-accumulates of a program."""
    return int(count(opened(target, **options)).total.macs)
