"""Losses that divide a sum by a size of the batch: replicas divide by that of their part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.parallelism import Degrees, per_rank
from tests.parallelism.divided import Divided

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def step_with(loss: Loss, batch: int = 4, seq: int = 3) -> Callable[[], Any]:
    """A step with a loss of scores (batch, seq, 8), of as many numbers and of classes (batch, seq)."""

    def workload() -> Any:
        model = nn.Linear(6, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x, numbers = torch.randn(batch, seq, 6), torch.rand(batch, seq, 8)
        classes = torch.randint(0, 8, (batch, seq))

        def step() -> None:
            optimizer.zero_grad()
            loss(model(x), numbers, classes).backward()
            optimizer.step()

        return step

    return workload


LOSSES: dict[str, Loss] = {
    "batchmean": lambda z, y, t: F.kl_div(z.log_softmax(-1), y, reduction="batchmean"),
    "probabilities": lambda z, y, t: F.cross_entropy(z.flatten(0, 1), y.flatten(0, 1)),
    "smoothed probabilities": lambda z, y, t: F.cross_entropy(z.flatten(0, 1), y.flatten(0, 1), label_smoothing=0.1),
    "smoothed": lambda z, y, t: F.cross_entropy(z.flatten(0, 1), t.flatten(), label_smoothing=0.1),
    "summed by hand": lambda z, y, t: ((z - y) ** 2).sum() / (z.shape[0] * z.shape[1]),
    "summed, then by dimension": lambda z, y, t: -((z - y) ** 2).sum((1, 2)).sum(0) / z.shape[0],
    "summed, then averaged": lambda z, y, t: ((z - y) ** 2).sum(0).sum(0).mean() / z.shape[0],
    "times the inverse": lambda z, y, t: F.mse_loss(z, y, reduction="sum") * (1 / z.shape[0]),
    "summed cross-entropy": lambda z, y, t: F.cross_entropy(z.flatten(0, 1), t.flatten(), reduction="sum") / t.numel(),
    "margins": lambda z, y, t: F.multi_margin_loss(z.flatten(0, 1), t.flatten()),
    "summed margins": lambda z, y, t: F.multi_margin_loss(z.flatten(0, 1), t.flatten(), reduction="sum") / t.numel(),
}

OF_SAMPLES = ("batchmean", "summed, then by dimension", "summed, then averaged", "times the inverse")
"""Losses that sum over tokens and are a mean over samples."""


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_replicas_are_those_of_the_whole(name: str) -> None:
    graph = capture(step_with(LOSSES[name]))
    Divided(graph, data=2).assert_equal()
    Divided(graph, data=2, tensor=2).assert_equal()
    assert not per_rank(graph, Degrees(data=2)).remarks


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in OF_SAMPLES])
def test_gradients_of_parts_of_sequences_are_those_of_the_whole(name: str) -> None:
    graph = capture(step_with(LOSSES[name], seq=10))
    Divided(graph, context=2).assert_equal()
    assert not per_rank(graph, Degrees(context=2)).remarks


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_a_sum_over_sequences_is_named(name: str) -> None:
    (remark,) = per_rank(capture(step_with(LOSSES[name], seq=10)), Degrees(context=2)).remarks
    assert remark.startswith("The loss is a sum over sequences")


def test_a_number_that_may_be_the_batch_or_another_size_is_refused() -> None:
    step = step_with(lambda z, y, t: ((z - y) ** 2).sum() / z.shape[0], seq=4)
    with pytest.raises(DegreesError, match=r"aten\.div\.Tensor in .* divides a sum by 4: of the batch, or of another"):
        per_rank(capture(step), Degrees(data=2))


def test_one_number_with_two_meanings_is_refused() -> None:
    step = step_with(lambda z, y, t: ((z - y) ** 2).sum() / z.shape[0] + (z * z).mean() / 4)
    with pytest.raises(DegreesError, match=r"has the number 4, which is a size of the batch in .* and none in"):
        per_rank(capture(step), Degrees(data=2))


def test_a_sum_over_the_batch_is_named() -> None:
    for loss in (lambda z, y, t: ((z - y) ** 2).sum(), lambda z, y, t: ((z - y) ** 2).sum() / 3.5):
        (remark,) = per_rank(capture(step_with(loss)), Degrees(data=2)).remarks
        assert remark.startswith("The loss is a sum over the batch")
