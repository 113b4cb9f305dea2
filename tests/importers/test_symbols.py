"""Open sizes and symbols are alike in every format."""

from __future__ import annotations

import pytest

import tensortide
from tensortide.errors import WorkloadError
from tensortide.importers.symbols import BATCH, LENGTH, require_symbols
from tests.importers.onnx.build import FLOAT, model, node


def test_a_misspelt_symbol_is_an_error_that_names_the_nearest() -> None:
    require_symbols("a.onnx", ["batch"], ["batch", "length"])
    with pytest.raises(
        WorkloadError, match=r"^a.onnx has no symbol 'bach'; did you mean batch\?\n.*: batch, length\.$"
    ):
        require_symbols("a.onnx", ["batch", "bach"], ["batch", "length"])
    with pytest.raises(WorkloadError, match="none: all sizes are stored"):
        require_symbols("a.onnx", ["batch"], [])


def test_open_sizes_of_an_onnx_model_are_the_examples_of_all_importers() -> None:
    graph = tensortide.open(model([node("Relu", "x", "y")], {"x": (FLOAT, ["n", "length", 3])}, "y")).graph
    assert graph.tensors[0].shape == (BATCH, LENGTH, 3)
