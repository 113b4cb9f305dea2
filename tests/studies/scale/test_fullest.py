"""Experts that are modules: time and memory are those of the rank with the most rows, whichever it is."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional as F

from tensortide import capture
from tensortide.parallelism import Degrees, per_rank
from tensortide.recorder import resolver
from tensortide.studies.scale import Captured, ScalePrediction
from tensortide.studies.scale.stage import stage
from tensortide.timing import device
from tests.parallelism.test_module_experts import BATCH, EXPERTS, HIDDEN, PAIRS, SEQ, Mixture, choice
from tests.studies.scale.test_captured import A100, mixture, node, plain

SWAPPED = [[(expert + EXPERTS // 2) % EXPERTS for expert in pair] for pair in PAIRS]
"""The same routing to the experts of the other of two ranks: the second has most rows, 13 of 24 a sequence."""
SLOW = replace(device(A100), memory_gbytes_per_s=0.02)
"""A device on which few rows take longer than their launches."""
ONE = replace(plain(data=2, expert=2, micro_batch=BATCH // 2), batch=BATCH)


class Layers(nn.Module):
    """Layers of experts, each with a routing of its own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.inner = nn.Linear(6, HIDDEN)
        self.layers = nn.ModuleList(Mixture("where") for _ in range(number))

    def forward(self, x: torch.Tensor, *chosen: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for layer, each in zip(self.layers, chosen, strict=True):
            x = x + layer(x, each)
        return x


@functools.cache
def step(*swapped: bool) -> Captured:
    """A step whose layers route as they are told to."""

    def workload() -> Callable[[], None]:
        model = Layers(len(swapped))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, target = torch.randn(BATCH, SEQ, 6), torch.randn(BATCH, SEQ, HIDDEN)
        chosen = [choice(2, SWAPPED if each else PAIRS) for each in swapped]

        def step() -> None:
            optimizer.zero_grad()
            F.mse_loss(model(x, *chosen), target).backward()
            optimizer.step()

        return step

    return Captured(capture(workload, real=True), SLOW, batch=BATCH, resolver=resolver)


def predicted(*swapped: bool) -> ScalePrediction:
    return step(*swapped).predict(ONE, node(2))


def test_memory_is_that_of_the_rank_with_the_most_rows() -> None:
    graph = step(True).graph
    first, second = (per_rank(graph, ONE.degrees, expert_rank=rank).peak_bytes[0] for rank in range(2))
    assert per_rank(graph, ONE.degrees).peak_bytes == (first,)
    assert _of_step(predicted(True)) == second > first
    assert _of_step(predicted(False)) == per_rank(step(False).graph, ONE.degrees).peak_bytes[0]


def _of_step(found: ScalePrediction) -> float:
    """Bytes of the ops of a rank, which has buckets of its gradients beside them."""
    return found.peak_bytes - found.memory["buckets of DistributedDataParallel"]


def test_the_rank_whose_experts_are_full_changes_no_time() -> None:
    first, second = predicted(False), predicted(True)
    assert second.parts == pytest.approx(first.parts, rel=1e-4)
    assert any("(26 of 48 to this rank, balanced 24)" in remark for remark in second.remarks)


def test_ranks_wait_for_the_one_with_the_most_rows_in_each_layer() -> None:
    """Of two layers each rank is the fullest of one: the passes take as long as if one rank were it in both, longer
    than on either alone, and no rank has as much memory."""
    alike, crossed = predicted(False, False), predicted(False, True)
    for part in ("compute", "expert"):
        assert crossed.parts[part] == pytest.approx(alike.parts[part], rel=1e-4)
    assert crossed.peak_bytes < alike.peak_bytes
    graph = step(False, True).graph
    assert per_rank(graph, ONE.degrees).fullest == (0, 1)
    for rank in range(2):
        own = per_rank(graph, ONE.degrees, expert_rank=rank).graph
        alone = stage(own, ONE, node(2), SLOW, resolver)
        assert crossed.parts["compute"] + crossed.parts["expert"] > 1.001 * (alone.forward_ns + alone.backward_ns)


def test_ranks_with_as_many_rows_are_alike() -> None:
    assert per_rank(step(True, True).graph, ONE.degrees).fullest == (1,)
    assert per_rank(step(False).graph, Degrees(data=2)).fullest == ()
    assert per_rank(mixture().graph, Degrees(data=2, expert=2)).fullest == ()
