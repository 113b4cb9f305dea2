"""Memory of accumulated gradients, against captured loops that accumulate them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tensortide import capture, timeline
from tensortide.graph import Graph
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.accumulation import gradient_bytes, resident_bytes
from tests.marks import some_slow

BATCH, TOKENS, WIDTH, LAYERS = 8, 64, 512, 2
PARAMETER_BYTES = 4 * (LAYERS * (WIDTH * WIDTH + WIDTH) + WIDTH * WIDTH)


def loop(micro_batch: int) -> Callable[[], None]:
    """A step that accumulates the gradients of micro-batches, as users write it."""
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(nn.Embedding(WIDTH, WIDTH), *layers)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, targets = torch.randint(0, WIDTH, (BATCH, TOKENS)), torch.randint(0, WIDTH, (BATCH, TOKENS))

    def step() -> None:
        for start in range(0, BATCH, micro_batch):
            part = slice(start, start + micro_batch)
            loss = nn.functional.cross_entropy(model(inputs[part]).flatten(0, 1), targets[part].flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@functools.cache
def captured(micro_batch: int) -> Graph:
    return capture(loop(micro_batch), device="cuda")


@pytest.mark.parametrize("micro_batch", some_slow([8, 4, 2], [8, 4]))
def test_the_peak_is_that_of_a_loop_that_accumulates_gradients(micro_batch: int) -> None:
    ranks = per_rank(captured(BATCH), Degrees(micro_batches=BATCH // micro_batch))
    assert ranks.peak_bytes[0] == pytest.approx(timeline(captured(micro_batch)).peak_bytes, rel=0.003)


def test_all_gradients_are_resident_from_the_second_micro_batch_on() -> None:
    graph = per_rank(captured(BATCH), Degrees(micro_batches=4)).graph
    assert gradient_bytes(graph) == PARAMETER_BYTES
    first, later = resident_bytes(graph), resident_bytes(graph, 4)
    assert later[0] - first[0] == PARAMETER_BYTES
    assert later[-1] == first[-1]  # in the update no gradient is missing from the Graph of one micro-batch


def test_shards_of_gradients_are_resident_where_zero_shards_them() -> None:
    graph = captured(BATCH)
    whole, sharded = (per_rank(graph, Degrees(data=2, zero=stage, micro_batches=4)).graph for stage in (1, 2))
    assert gradient_bytes(whole) == PARAMETER_BYTES
    assert gradient_bytes(sharded) == PARAMETER_BYTES // 2
