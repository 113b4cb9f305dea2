"""Float operations are those by hand, on graphs of TensorFlow that are read without it, and of PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensortide
from tensortide.cost import count
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


class Net(nn.Module):
    """Layers as Keras calls PyTorch for them: a bias is added, a normalization is written out, some of it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.Linear(4, 5)
        self.variance = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x).add(torch.ones(4, 1, 1)).relu()
        scale = self.variance.add(1e-3).rsqrt_()
        y = y.subtract(0.5).mul_(scale.reshape(4, 1, 1)).add_(1.0)
        pooled = nn.functional.avg_pool2d(y, 4) * nn.functional.max_pool2d(y, 4)
        scores: torch.Tensor = self.dense(pooled.mean((2, 3)))
        return scores.exp().softmax(-1)


def test_ops_of_pytorch_are_charged_as_their_twins() -> None:
    model = Net().eval()
    graph = backend_of(model).forward_graph(model, Arguments((torch.rand(1, 3, 8, 8),)))
    written = 64 * 4 * (1 + 3) + 4 + 2 * 4  # the bias, the normalization, and what it takes of each channel
    pooled = 2 * 16 * 16 + 16 + 16  # windows of both poolings, their product, the mean
    assert float_operations(count(graph)) == 2 * (64 * 4 * 27 + 4 * 5) + written + pooled + 5 + 5 * 5
