"""Ordinary workloads are captured without a word from the user, and as they really run."""

from __future__ import annotations

import pytest

from tensortide import capture
from tensortide.graph import Graph, validate
from tests.marks import some_slow
from tests.recorder.corpus import CORPUS

ON_REAL_TENSORS = frozenset(
    [
        *("boolean_mask", "masked_select", "routed_experts", "longest_in_batch", "packed_literal_lengths"),
        *("packed_list_of_lengths", "detection_boxes", "unique_tokens", "ctc_with_lists", "encoder_in_evaluation"),
        *("adaptive_softmax", "wav2vec2", "hubert"),
    ]
)
"""Values decide the shapes of these, or a kernel looks into memory."""
BY_CHANCE = frozenset(["stochastic_depth", "best_so_far", "curriculum_by_loss"])
"""Values decide which ops these run: real ones differ from run to run."""
ELSEWHERE = frozenset(["detr", "deberta", "longformer", "sparse_embedding", "convnext"])
"""Known differences: a library that is not installed; in-place writes to views; sparse gradients; layouts of
dimensions of size 1."""
FAST = frozenset(
    [
        *("logged_loss", "nan_guard", "scaled_gradients", "line_search", "accuracy_in_numpy", "boolean_mask"),
        *("known_mask", "routed_experts", "longest_in_batch", "ctc_with_tensors", "actor_critic"),
        *("encoder_in_evaluation", "drop_path_rates", "beam_of_tokens", "mixup"),
    ]
)


def storages(graph: Graph) -> list[tuple[str, str, int, str]]:
    """Birth, death, bytes and role of every storage, in any order."""
    return sorted((repr(s.birth), repr(s.death), s.nbytes, s.role.value) for s in graph.storages)


def ops(graph: Graph) -> list[object]:
    return [(op.name, [t.shape for t in op.inputs], [t.shape for t in op.outputs]) for op in graph]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some_slow(sorted(CORPUS.keys() - {"detr"}), sorted(CORPUS.keys() - FAST)))
def test_an_ordinary_workload_is_captured_as_it_runs(name: str) -> None:
    graph = capture(CORPUS[name])
    validate(graph)
    assert graph.meta.captured_on == ("real" if name in ON_REAL_TENSORS else "fake")
    if name in ON_REAL_TENSORS:
        assert "captured on real tensors; on fake ones: " in graph.meta.assumptions[0]
    elif name not in BY_CHANCE | ELSEWHERE:
        real = capture(CORPUS[name], real=True)
        assert ops(graph) == ops(real)
        assert storages(graph) == storages(real)
