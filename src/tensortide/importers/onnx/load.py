"""From a model to what an importer returns."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from tensortide.collector import no_collection
from tensortide.errors import WorkloadError
from tensortide.importers.imported import Imported
from tensortide.importers.onnx.convert import Conversion
from tensortide.importers.onnx.read import Model
from tensortide.importers.onnx.value import OnnxError, Settings


@no_collection()
def imported(model: Model, name: str, symbols: Mapping[str, int], optimizer: str = "") -> Imported:
    """Convert a model, with an ``optimizer`` as the training step derived from it.

    Raises OnnxError for a model that contradicts itself, WorkloadError for a setting that is no symbol of it.
    """
    settings = Settings(dict(symbols))
    conversion = Conversion(model, settings)
    try:
        graph = conversion.graph(name)
    except RecursionError as error:
        raise OnnxError(f"{model.file}: graphs or functions are nested too deep") from error
    known = {*conversion.settings.values, *conversion.settings.asked}
    if unknown := [key for key in symbols if key not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        listed = ", ".join(sorted(known)) or "none"
        raise WorkloadError(f"{name} has no symbol {unknown[0]!r}{hint}\nIts symbols are: {listed}.")
    if optimizer:
        from tensortide.importers.onnx.training.derive import trained

        graph = trained(graph, optimizer)
    return Imported(graph, symbols=conversion.settings.values)
