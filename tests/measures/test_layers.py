"""The layer table: its rows add up to the metrics, by op and by module."""

from __future__ import annotations

import pytest

import tensortide
from tensortide.measures.layers import layers
from tensortide.measures.profiler import Profiler
from tensortide.measures.subject import StepSubject
from tests.graphs import stored

SUMS = {
    "macs": "macs",
    "elementwise_flops": "elementwise_flops",
    "accessed_bytes": "bytes",
    "parameters": "total_params",
    "parameter_bytes": "model_size",
    "saved_bytes": "saved_activations",
}


@pytest.mark.parametrize("name", ["mlp", "conv", "word2vec"])
@pytest.mark.parametrize("by", ["op", "module"])
def test_rows_add_up_to_the_metrics(name: str, by: str) -> None:
    subject = StepSubject(stored(name))
    found = layers(subject, "op" if by == "op" else "module")
    values = Profiler(subject).compute_all()
    assert {column: sum(getattr(row, column) or 0 for row in found.rows) for column in SUMS} == {
        column: values[metric] for column, metric in SUMS.items()
    }
    assert all(row.path for row in found.rows)


SMALLEST: dict[str, int | str] = {"depth": 8, "variant": "cifar", "image": 8, "batch": 2}


def test_the_most_live_bytes_are_the_activation_peak_of_a_forward() -> None:
    subject = StepSubject(tensortide.open("resnet", hyperparameters={**SMALLEST, "train": False}).graph)
    assert max(row.live_bytes for row in layers(subject).rows) == Profiler(subject).compute("activation_peak")


def test_a_linear_layer_has_its_weight_and_its_bias() -> None:
    rows = layers(StepSubject(tensortide.open("mlp").graph)).rows
    first = next(row for row in rows if row.op == "aten.addmm.default")
    assert first.parameters == 784 * 1024 + 1024
    assert first.weights == "f32[1024,784] f32[1024]"
    assert not any("view" in row.op or row.op == "aten.t.default" for row in rows)
