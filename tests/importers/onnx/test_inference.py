"""Shapes of results are those that onnx infers and those of its reference implementation's runs, op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import InferenceError, infer_shapes

import tensortide
from tensortide.graph.model import Tensor
from tensortide.importers.onnx.read import DTYPES
from tests.importers.onnx.cases import CASES, Case, named

UNRUN = {
    "ConvTranspose", "DequantizeLinear", "MaxRoiPool", "Multinomial", "NonMaxSuppression", "OneHot", "Pad", "Resize",
    "SimplifiedLayerNormalization", "Upsample",
}  # fmt: skip
"""Ops that the reference implementation lacks, or calls of which it fails in."""
APART = {("AveragePool", "inferred"), ("STFT", "inferred"), ("MaxPool", "run"), ("Unique", "run")}
"""Answers that are not those of onnxruntime (a window in the padding, the padding of SAME_LOWER), or depend on data."""


def results(case: Case) -> list[Tensor]:
    graph = tensortide.open(case.model()).graph
    return [graph.tensors[i] for i in graph.ops[-1].outputs]


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [tuple(map(int, result.shape)) for result in results(case)]


def types_of(case: Case) -> list[Any]:
    """Return the types that onnx infers for the results."""
    try:
        outputs = infer_shapes(case.model(), strict_mode=True, data_prop=True).graph.output
    except InferenceError:
        return []
    return [output.type.tensor_type for output in outputs]


def inferred(case: Case) -> list[tuple[int | None, ...] | None]:
    """Return the shapes that onnx infers; None for a dimension or a rank that it does not."""
    return [
        tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
        if kind.HasField("shape") else None
        for kind in types_of(case)
    ]  # fmt: skip


def fits(found: tuple[int, ...], told: tuple[int | None, ...] | None) -> bool:
    return told is None or (len(found) == len(told) and all(n in (None, m) for m, n in zip(found, told, strict=True)))


@pytest.mark.parametrize("case", CASES, ids=named)
def test_results_have_the_shapes_that_onnx_infers(case: Case) -> None:
    told = inferred(case)
    differ = [pair for pair in zip(shapes(case), told, strict=False) if not fits(*pair)]
    assert not differ or (case.op, "inferred") in APART


@pytest.mark.parametrize("case", CASES, ids=named)
def test_results_have_the_dtypes_that_onnx_infers(case: Case) -> None:
    for result, kind in zip(results(case), types_of(case), strict=False):
        if kind.elem_type != TensorProto.UNDEFINED:
            assert result.dtype == DTYPES[kind.elem_type]


@pytest.mark.parametrize("case", [case for case in CASES if not case.domain and case.op not in UNRUN], ids=named)
def test_results_have_the_shapes_of_a_run_of_the_reference(case: Case) -> None:
    made = [np.shape(result) for result in ReferenceEvaluator(case.model()).run(None, case.feeds)]
    assert shapes(case) == made or (case.op, "run") in APART


def test_most_shapes_are_inferred() -> None:
    told = [shape for case in CASES for shape in inferred(case)]
    assert sum(shape is not None and None not in shape for shape in told) > 150
