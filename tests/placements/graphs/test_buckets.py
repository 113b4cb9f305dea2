"""Buckets of gradients: PyTorch's rule, one dtype each, the first one small."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tensortide
from tensortide.graph import Graph
from tensortide.placements.graphs import replicas
from tensortide.timelines.data_parallel import buckets_of
from tests.placements.graphs.test_exchanges import SLOW, assert_beside, buckets_of_pytorch, on_groups

DTYPES = ("float32", "bfloat16", "float64")


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(1, 100)), min_size=1, max_size=40),
    st.integers(0, 600),
    st.integers(0, 600),
)
def test_buckets_are_those_of_pytorch(gradients: list[tuple[str, int]], limit: int, first: int) -> None:
    tensors = [torch.empty(count, dtype=getattr(torch, dtype)) for dtype, count in gradients]
    sizes = [(dtype, tensor.nbytes) for (dtype, _), tensor in zip(gradients, tensors, strict=True)]
    assert buckets_of(sizes, limit, first) == buckets_of_pytorch(tensors, list(range(len(tensors))), first, limit)


class Mixed(nn.Module):
    """Layers in float32 and in bfloat16 in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64, dtype=(torch.float32, torch.bfloat16)[i % 2]) for i in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x.to(next(layer.parameters()).dtype))
        return x


@functools.cache
def mixed() -> Graph:
    torch.manual_seed(0)
    return tensortide.capture(Mixed(), torch.randn(8, 64), loss="sum", optimizer="sgd", real=True)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("bucket_bytes", [None, 0, 9_000, 20_000])
def test_a_bucket_has_one_dtype(bucket_bytes: int | None, size: int) -> None:
    found = on_groups(mixed(), SLOW, size, bucket_bytes=bucket_bytes)
    assert_beside(found)
    graph = found.ready.graph
    for own in found.exchange_runs:
        dtypes = [{graph.tensors[graph.ops[op].inputs[0]].dtype for op in bucket.ops} for bucket in own]
        assert all(len(each) == 1 for each in dtypes)
        assert {dtype for each in dtypes for dtype in each} == {"float32", "bfloat16"}


def test_the_first_bucket_of_each_dtype_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is full with its first weight; the others of the dtype are not."""
    monkeypatch.setattr(replicas, "FIRST_BUCKET_BYTES", 5_000)
    monkeypatch.setattr(replicas, "BUCKET_BYTES", 40_000)
    found = on_groups(mixed(), SLOW)
    assert_beside(found)
    assert sorted(bucket.nbytes for bucket in found.exchange_runs[0])[:2] == [64 * 64 * 2, 64 * 64 * 4]
