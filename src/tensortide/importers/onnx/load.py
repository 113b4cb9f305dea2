"""From a model to what an importer returns."""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.collector import no_collection
from tensortide.errors import GraphError
from tensortide.graph.model import Graph
from tensortide.importers.imported import Imported
from tensortide.importers.onnx.convert import Conversion
from tensortide.importers.onnx.read import Model
from tensortide.importers.onnx.single import require_single_assignment
from tensortide.importers.onnx.value import OnnxError, Settings
from tensortide.importers.symbols import LENGTH, require_symbols


@no_collection()
def imported(model: Model, name: str, symbols: Mapping[str, int], optimizer: str = "") -> Imported:
    """Convert a model, with an ``optimizer`` as the training step derived from it.

    Raises OnnxError for a model that contradicts itself, WorkloadError for a setting that is no symbol of it.
    """
    require_single_assignment(model)
    conversion, graph = _converted(model, name, symbols)
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


def _converted(model: Model, name: str, symbols: Mapping[str, int]) -> tuple[Conversion, Graph]:
    """Convert a model. Raises OnnxError, where all lengths fail the error of the first."""
    first: OnnxError | None = None
    for length in LENGTHS:
        settings = Settings(dict(symbols), length=length)
        try:
            conversion = Conversion(model, settings)
            return conversion, conversion.graph(name)
        except RecursionError as error:
            raise OnnxError(f"{model.file}: graphs or functions are nested too deeply") from error
        except OnnxError as error:
            first = first or error
            if length not in settings.values.values():
                break
    raise first or OnnxError(f"{model.file}: no shapes")
