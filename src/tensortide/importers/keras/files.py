"""A ``.keras`` file as a Graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensortide.collector import no_collection
from tensortide.importers.imported import Imported
from tensortide.importers.keras.archive import read_config
from tensortide.importers.keras.model import Model
from tensortide.importers.symbols import require_symbols


@no_collection()
def import_file(path: Path, settings: Mapping[str, int]) -> Imported:
    """Read the inference of the model in a Keras file. ``settings`` are values of the sizes that it leaves open.

    Raises KerasFileError for a damaged file, WorkloadError for a setting that is no symbol of its sizes.
    """
    config, version = read_config(path)
    model = Model(str(path), config, version, settings)
    graph = model.graph(path.name)
    require_symbols(path, settings, model.symbols)
    return Imported(graph, symbols=model.symbols)
