"""What ``metrics`` answers, asked in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.errors import MetricError, RequestError
from tensortide.measures.request import MetricsRequest, answer
from tests.graphs import files

GPT2 = str(files.path_of("gpt2_cpu"))


def test_metrics_of_a_step_and_of_a_saved_status(tmp_path: Path) -> None:
    found = answer(MetricsRequest(target=GPT2, layers="module"))
    assert found.graph == files.stored("gpt2_cpu")
    assert found.layers is not None
    assert found.layers.by == "module"
    assert found.figures is None
    path = str(found.metrics.save(tmp_path / "a.status.json"))
    again = answer(MetricsRequest(target=path, exclude=("ops",), long=True))
    assert again.graph is None
    assert again.metrics["flops"] == found.metrics["flops"]
    with pytest.raises(RequestError, match="is a saved status: --strict goes with a step"):
        answer(MetricsRequest(target=path, strict=True))
    with pytest.raises(MetricError, match="no metric 'flop'"):
        answer(MetricsRequest(target=GPT2, exclude=("flop",)))
