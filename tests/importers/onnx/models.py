"""Models to test with: those of the reference data, or what of them is in the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.reference import reference_folder

OWN = Path(__file__).resolve().parents[2] / "data" / "importers" / "onnx"
_WHOLE = reference_folder() / "importers"


def truth() -> dict[str, dict[str, Any]]:
    """Return the records of all ONNX models, by name."""
    file = _WHOLE / "truth.json" if (_WHOLE / "onnx" / "convs.onnx").exists() else OWN / "truth.json"
    models = json.loads(file.read_text())["models"]
    return {name.partition("/")[2]: model for name, model in models.items() if model["format"] == "onnx"}


def model(name: str) -> Path:
    """Return the file of a model."""
    whole = _WHOLE / "onnx" / f"{name}.onnx"
    return whole if whole.exists() else OWN / f"{name}.onnx"


def bad(name: str) -> Path:
    """Return a malformed or hostile file."""
    return OWN / f"bad_{name}.onnx"
