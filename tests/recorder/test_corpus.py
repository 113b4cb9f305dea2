"""Ordinary workloads are captured without a word from the user, and as they really run."""

from __future__ import annotations

import pytest

from tensortide import capture
from tensortide.graph import validate
from tests.marks import some_slow
from tests.recorder.corpus import CORPUS
from tests.recorder.steps import assert_same_but_views, ops, storages

ON_REAL_TENSORS = frozenset(
    [
        *("masked_select", "routed_experts", "detection_boxes", "unique_tokens"),
        *("ctc_with_lists", "adaptive_softmax", "wav2vec2"),
    ]
)
"""Values decide the shapes of these, or a kernel reads memory."""
BY_CHANCE = frozenset(["stochastic_depth", "best_so_far", "beam_of_tokens"])
"""Values decide which ops these run: real ones differ from run to run."""
ELSEWHERE = frozenset(["detr", "deberta", "longformer", "sparse_embedding", "convnext"])
"""Known differences: a library that is not installed; in-place writes to views; sparse gradients; layouts of
dimensions of size 1."""
OTHER_VIEWS = frozenset(["packed_literal_lengths"])
"""The same ops on the same storages, through other views."""
FAST = frozenset(
    [
        *("scaled_gradients", "accuracy_in_numpy", "known_mask", "routed_experts", "ctc_with_tensors"),
        *("actor_critic", "beam_of_tokens", "mixup"),
    ]
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some_slow(sorted(CORPUS.keys() - {"detr"}), sorted(CORPUS.keys() - FAST)))
def test_an_ordinary_workload_is_captured_as_it_runs(name: str) -> None:
    graph = capture(CORPUS[name])
    validate(graph)
    assert graph.meta.captured_on == ("real" if name in ON_REAL_TENSORS else "fake")
    if name in ON_REAL_TENSORS:
        assert "captured on real tensors; fake ones failed: " in graph.meta.assumptions[0]
    elif name not in BY_CHANCE | ELSEWHERE:
        real = capture(CORPUS[name], real=True)
        if name in OTHER_VIEWS:
            assert_same_but_views(graph, real)
        else:
            assert ops(graph) == ops(real)
            assert storages(graph) == storages(real)
