"""Training over several processes leaves behind under budgets on every rank what it does without, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from tests.marks import some_slow
from tests.run.ranks import Ranks

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")

KINDS = (
    *("by-hand-async", "by-hand-coalesced", "by-hand-functional", "by-hand-sync", "contrastive"),
    *("ddp", "ddp-half", "ddp-half-in-c++", "ddp-no-sync", "ddp-static", "ddp-unused", "ddp-views"),
    *("fsdp1", "fsdp1-originals", "fsdp2", "fsdp2-clip", "fsdp2-half", "fsdp2-kept"),
    *("pipeline", "pipeline-1f1b", "tensor", "tensor-sequence", "zero", "zero-views"),
)
"""Those of ``parallel``, which imports much."""
FAST = ("by-hand-async", "ddp-static")
FOUR = ("by-hand-coalesced", "contrastive", "ddp-static", "fsdp2-half", "pipeline-1f1b", "tensor-sequence", "zero")
"""One of each way to share the work: with four, tensors have more parts and pipelines stages in the middle."""
LEAST = {"contrastive": 0.85, "tensor": 0.7, "fsdp2": 0.85, "fsdp1": 0.9}
"""Least shares with which training gets through, of the kinds that need more than half, by the start of the name."""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(4, tmp_path_factory.mktemp("four"))
    yield ranks
    ranks.close()


def assert_same(ranks: Ranks, kind: str, share: float) -> None:
    """All ranks are the same without a limit and under ``share`` of what they need, each with a little more than the
    rank before, and recompute under it."""
    share = max(share, LEAST.get(kind.partition("-")[0] if kind != "fsdp2-kept" else kind, 0.0))
    for free, tight in ranks.call("tests.run.parallel:trained", kind, share):
        assert free == (True, 0)
        assert tight[0]
        assert tight[1] > 0


@pytest.mark.parametrize("kind", some_slow(KINDS, set(KINDS) - set(FAST)))
def test_two_processes(kind: str, two: Ranks) -> None:
    assert_same(two, kind, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOUR)
def test_four_processes(kind: str, four: Ranks) -> None:
    assert_same(four, kind, 0.7)
