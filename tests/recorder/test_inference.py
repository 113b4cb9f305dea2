"""Inference is a workload too: a step of one phase, with weights that stay and a cache that grows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tensortide import capture, report, timeline
from tensortide.graph import Graph, Phase, Role

pytestmark = pytest.mark.slow  # transformers is imported

BATCH, PROMPT, TOKENS, LAYERS, HIDDEN = 2, 16, 8, 2, 64


@pytest.fixture(scope="module")
def generate() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=500, n_embd=HIDDEN, n_layer=LAYERS, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=1
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(2, 500, (BATCH, PROMPT))
    return lambda: model.generate(ids, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, pad_token_id=0)


def at_each_token(graph: Graph) -> list[int]:
    """Bytes resident while the scores of each token are computed."""
    heads = [op.index for op in graph if op.module == "lm_head" and op.name == "aten.mm.default"]
    resident = timeline(graph).resident
    return [int(resident[op]) for op in heads]


@pytest.fixture(scope="module")
def graph(generate: Any) -> Graph:
    return capture(generate)


def test_generation_is_one_phase_that_leaves_its_tokens(graph: Graph) -> None:
    assert {op.phase for op in graph} == {Phase.FORWARD}
    assert {s.role for s in graph.storages} == {Role.PARAMETER, Role.INPUT, Role.ACTIVATION, Role.OUTPUT}
    [made] = [n for n in graph.named if n.role is Role.OUTPUT]
    assert graph.tensors[made.tensor].shape == (BATCH, PROMPT + TOKENS)
    titles = [section.title for section in report(graph).sections]
    assert "Totals" in titles


def test_the_cache_grows_by_keys_and_values_of_each_token(graph: Graph) -> None:
    resident = at_each_token(graph)
    assert len(resident) == TOKENS
    each = 2 * LAYERS * BATCH * HIDDEN * 4
    tokens = BATCH * 8  # the ids, too, grow by one each
    assert {later - earlier for earlier, later in itertools.pairwise(resident[1:])} <= {
        each + tokens + rest for rest in range(-64, 65)
    }


def test_generation_on_real_tensors_is_the_same(graph: Graph, generate: Any) -> None:
    real = capture(generate, real=True)
    assert [op.name for op in real] == [op.name for op in graph]
    assert timeline(real).peak_bytes == timeline(graph).peak_bytes
