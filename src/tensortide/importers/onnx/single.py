"""Single assignment: a name of a graph stands for one value, wherever it can be read."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping

from tensortide.importers.onnx.read import Body, Model
from tensortide.importers.onnx.value import OnnxError


def require_single_assignment(model: Model) -> None:
    """Raise OnnxError for a name that has two origins, which both stand in the message.

    A stored tensor may have the name of an input, whose default it is. A graph inside a node reads the names around it,
    so its nodes make none that is known there before; its inputs and stored tensors may hide one.
    """
    _check(model.file, model.graph, {}, "")
    for (domain, name), body in model.functions.items():
        _check(model.file, body, {}, f"function {'::'.join(filter(None, (domain, name)))}: ")


def _check(file: str, body: Body, outside: MutableMapping[str, str], place: str) -> None:
    def once(names: Mapping[str, str], name: str, origin: str) -> None:
        if name in names:
            raise OnnxError(f"{file}: {place}{name} is {names[name]} and {origin}: a name stands for one value")

    inputs, stored = dict[str, str](), dict[str, str]()
    for names, listed, origin in (
        (inputs, [port.name for port in body.inputs], "an input"),
        (stored, [tensor.name for tensor in body.stored], "a stored tensor"),
    ):
        for name in filter(None, listed):
            once(names, name, origin)
            names[name] = origin
    known: ChainMap[str, str] = ChainMap(inputs | stored, outside)
    for node in body.nodes:
        for value in node.attributes.values():
            if isinstance(value, Body):
                _check(file, value, known, f"{place}{node}: "[-300:])
        for name in filter(None, node.outputs):
            once(known, name, f"an output of {node}")
            known[name] = f"an output of {node}"
