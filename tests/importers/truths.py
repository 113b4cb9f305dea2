"""Small models in the formats of TensorFlow and Keras, and what they cost, derived without any importer."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from tensortide.graph import Graph, Role
from tests.reference import reference_folder


@functools.cache
def folder() -> Path:
    """The folder of the models: of the whole reference data, or of what is committed."""
    return reference_folder() / "importers"


@functools.cache
def truth() -> dict[str, dict[str, Any]]:
    """The records of all models by name: ``savedmodel/mlp``."""
    whole = folder() / "truth.json"
    file = whole if whole.is_file() else folder() / "truth_tensorflow.json"
    models: dict[str, dict[str, Any]] = json.loads(file.read_text())["models"]
    return models


def named(kind: str) -> list[str]:
    """The models of a format."""
    return [name for name, record in truth().items() if record["format"] == kind]


def batch(name: str) -> int:
    """The first size of the first input at which the figures of a model hold."""
    return int(truth()[name]["inputs"][0].partition("[")[2].rstrip("]").split(",")[0])


def learned(graph: Graph) -> int:
    """The elements of all parameters, tied ones once."""
    tensors = {named.tensor for named in graph.named if named.role is Role.PARAMETER}
    return sum(graph.tensors[index].numel for index in tensors)
