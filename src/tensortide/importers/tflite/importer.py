"""TensorFlow Lite flat buffers as a row of the table of importers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head


@dataclass(frozen=True)
class LiteOptions(Options):
    """Options of reading a flat buffer. ``symbols``: ``batch`` where it is open, ``trips.NAME`` of loops."""

    symbols: Mapping[str, int] = field(default_factory=dict)


def _sniff(path: Path) -> bool:
    return head(path, 8, unpack=False)[4:8] == b"TFL3"


def _read(path: Path, options: LiteOptions) -> Imported:
    from tensortide.importers.tflite.convert import import_model

    return import_model(path, dict(options.symbols))


IMPORTER = Importer("tflite", "a TensorFlow Lite flat buffer (.tflite)", _sniff, _read, LiteOptions, takes_trips=True)
