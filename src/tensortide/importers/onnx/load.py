"""From a model to what an importer returns."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping

from tensortide.collector import no_collection
from tensortide.errors import GraphError
from tensortide.graph.model import Graph
from tensortide.importers.imported import Imported
from tensortide.importers.onnx.convert import Conversion
from tensortide.importers.onnx.read import Body, Model
from tensortide.importers.onnx.value import OnnxError, Settings
from tensortide.importers.symbols import LENGTH, require_symbols


@no_collection()
def imported(model: Model, name: str, symbols: Mapping[str, int], optimizer: str = "") -> Imported:
    """Convert a model, with an ``optimizer`` as the training step derived from it.

    Raises OnnxError for a model that contradicts itself, WorkloadError for a setting that is no symbol of it.
    """
    require_single_assignment(model)
    conversion, graph = _converted(model, name, symbols, bool(optimizer))
    require_symbols(name, symbols, sorted({*conversion.settings.values, *conversion.settings.asked}))
    if optimizer:
        from tensortide.importers.onnx.training.derive import trained

        try:
            graph = trained(graph, optimizer)
        except GraphError as error:
            raise OnnxError(f"{model.file}: its training step: {error}") from error
    return Imported(graph, symbols=conversion.settings.values)


LENGTHS = (LENGTH, 64, 16, 4, 256, 1)
"""Taken, in this order, for dimensions that the file leaves open and nobody set: the first with which shapes match."""


def _converted(model: Model, name: str, symbols: Mapping[str, int], trained: bool) -> tuple[Conversion, Graph]:
    """Convert a model. Raises OnnxError, where all lengths fail the error of the first."""
    first: OnnxError | None = None
    for length in LENGTHS:
        settings = Settings(dict(symbols), length=length)
        try:
            conversion = Conversion(model, settings, trained)
            return conversion, conversion.graph(name)
        except RecursionError as error:
            raise OnnxError(f"{model.file}: graphs or functions are nested too deeply") from error
        except OnnxError as error:
            first = first or error
            if length not in settings.values.values():
                break
    raise first or OnnxError(f"{model.file}: no shapes")


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
