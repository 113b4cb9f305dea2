"""Keras files and live models as a row of the table of importers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tensortide.errors import WorkloadError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions


@dataclass(frozen=True)
class KerasOptions(SizedOptions):
    """Options of reading a Keras model. ``symbols``: values of the sizes that it leaves open. Of a live model also
    ``inputs``, arrays or shapes to call it with (default: its own, ``batch`` samples), and ``training``: a step of
    ``model.train_step`` with the loss and the optimizer that it was compiled with."""

    inputs: Any = None
    targets: Any = None
    training: Annotated[bool, "Of a live Keras model: a step of its train_step, instead of the inference."] = False


def _sniff(path: Path) -> bool:
    from tensortide.importers.keras.archive import is_archive

    return is_archive(path)


def _read(path: Path, options: KerasOptions) -> Imported:
    from tensortide.importers.keras.model import import_file

    if options.training:
        raise WorkloadError(f"{path} describes an inference; a training step is of a live model, file.py:function")
    return import_file(path, options.symbols)


def _accepts(value: object) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.Layer)


def _convert(model: Any, options: KerasOptions) -> Imported:
    from tensortide.importers.keras.live import import_live

    return import_live(
        model, inputs=options.inputs, targets=options.targets, training=options.training, settings=options.symbols
    )


IMPORTER = Importer(
    "keras", "a Keras 3 model (.keras, or live)", _sniff, _read, KerasOptions, accepts=_accepts, convert=_convert,
    modules=("keras",), open_sizes=True, trips=True,
)  # fmt: skip
