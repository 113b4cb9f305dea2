"""TensorFlow Lite flat buffers as a row of the table of importers."""

from __future__ import annotations

from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions
from tensortide.importers.textfile import head


def _sniff(path: Path) -> bool:
    return head(path, 8, unpack=False)[4:8] == b"TFL3"


def _read(path: Path, options: SizedOptions) -> Imported:
    from tensortide.importers.tflite.convert import import_model

    return import_model(path, dict(options.symbols))


IMPORTER = Importer("tflite", "a TensorFlow Lite flat buffer (.tflite)", _sniff, _read, SizedOptions, trips=True)
