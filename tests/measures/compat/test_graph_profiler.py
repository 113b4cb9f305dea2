"""Float operations are those by hand, on graphs of TensorFlow that are read without it."""

from __future__ import annotations

import pytest
import torch

import tensortide
from tensortide.cost import count
from tensortide.errors import Unavailable
from tensortide.graph.model import Graph
from tensortide.measures.backend import Arguments, backend_of
from tensortide.measures.compat.graph_profiler import float_operations
from tests.importers import truths

CHARGED = {
    "savedmodel/while_constant": 7 * (2 + 1),  # counters of the loop, twice, and its condition; tanh is free
    "savedmodel/moe_topk": 5 * 10 * 4
    + 10 * 2 * 16
    + 10 * 16,  # softmax of the router, weights, their sum; ReLU is free
}


def graph_of(name: str) -> Graph:
    return tensortide.open(truths.folder() / name).graph


@pytest.mark.parametrize("name", CHARGED)
def test_products_count_twice_and_other_ops_as_charged(name: str) -> None:
    assert float_operations(count(graph_of(name))) == 2 * truths.truth()[name]["macs"] + CHARGED[name]


def test_ops_of_another_framework_are_not_charged() -> None:
    model = torch.nn.Linear(3, 2)
    graph = backend_of(model).forward_graph(model, Arguments((torch.rand(1, 3),)))
    with pytest.raises(Unavailable, match="run Keras on one of them"):
        float_operations(count(graph))
