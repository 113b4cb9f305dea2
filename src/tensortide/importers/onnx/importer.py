"""ONNX models as a row of the table of importers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tensortide.importers.imported import Imported
from tensortide.importers.protobuf import WireError, read_varint
from tensortide.importers.table import Importer, SizedOptions
from tensortide.importers.textfile import head

if TYPE_CHECKING:
    from tensortide.importers.onnx.read import Model

_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Fields of a model, and how each stands on the wire: a number or bytes."""
_GRAPH = (b"", *(bytes([number << 3 | 2]) for number in (1, 2, 5, 10, 11, 12, 13, 14, 15)))
"""First bytes of a graph."""


@dataclass(frozen=True)
class OnnxOptions(SizedOptions):
    """Options of reading a model. ``symbols`` are values of its symbolic dimensions and trip counts."""

    train: Annotated[bool, "Derive a training step from an inference model (ONNX)."] = False
    optimizer: Annotated[str, "The optimizer of a derived training step: sgd, momentum, adam, adamw, ..."] = "adamw"


def _sniff(path: Path) -> bool:
    """Walk over the first fields of the message: known ones alone, the version of the format among them."""
    data = head(path, unpack=False)
    at = 0
    seen: set[int] = set()
    while at < len(data) and len(seen) < 16:
        try:
            tag, at = read_varint(data, at)
            value, start = read_varint(data, at)
        except WireError:
            return False
        number, wire = tag >> 3, tag & 7
        if _FIELDS.get(number) != wire:
            return False
        if number == 1 and not 0 < value < 256:
            return False
        seen.add(number)
        at = start + (value if wire == 2 else 0)
        if number == 7 and at > len(data):
            return 1 in seen and (value > 1 << 40 or data[start : start + 1] in _GRAPH)
    return {1, 7} <= seen and at == len(data)


def _read(path: Path, options: OnnxOptions) -> Imported:
    from tensortide.importers.onnx.read import read_model

    return _converted(read_model(path), path.name, options)


def _accepts(target: object) -> bool:
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(target, onnx.ModelProto)


def _convert(target: Any, options: OnnxOptions) -> Imported:
    from tensortide.importers.onnx.read import model_of

    name = target.graph.name or "model"
    return _converted(model_of(target, name), name, options)


def _converted(model: Model, name: str, options: OnnxOptions) -> Imported:
    from tensortide.importers.onnx.load import imported

    return imported(model, name, options.symbols, options.optimizer if options.train else "")


IMPORTER = Importer(
    "onnx", "a model in ONNX (.onnx)", _sniff, _read, OnnxOptions, accepts=_accepts, convert=_convert, trips=True
)
