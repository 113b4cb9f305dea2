"""Shapes of results are those of onnxruntime's runs, op by op."""

from __future__ import annotations

from typing import Any

import pytest

import tensortide
from tests.importers.onnx.cases import CASES, Case, named

REFUSED = {"LSTM", "GRU", "RNN", "GroupQueryAttention"}
"""Ops of which onnxruntime refuses some valid models: recurrent ones with ``layout=1``, most of all."""
BOUND = {"Unique": [(4,), (4,), (4,), (4,)]}
"""Sizes that depend on data: here they are at most these."""


def ran(case: Case) -> list[tuple[int, ...]] | None:
    """Return the shapes of a run; None if the model is refused."""
    ort: Any = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(case.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [tuple(result.shape) for result in session.run(None, case.feeds)]
    except (ort.capi.onnxruntime_pybind11_state.Fail, ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        return None


@pytest.mark.frameworks
@pytest.mark.parametrize("case", CASES, ids=named)
def test_results_have_the_shapes_of_a_run(case: Case) -> None:
    graph = tensortide.open(case.model()).graph
    found = [tuple(map(int, graph.tensors[i].shape)) for i in graph.ops[-1].outputs]
    expected = ran(case)
    if expected is None:
        assert case.op in REFUSED
    else:
        assert found == BOUND.get(case.op, expected)
