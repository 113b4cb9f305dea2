"""Sums of gradients in place, taken apart again."""

from __future__ import annotations

import pytest

import tensortide
from tensortide.examples import find
from tensortide.graph import validate
from tensortide.memory.accumulate import accumulate_apart, accumulate_in_place, sums_in_place
from tensortide.timelines import timeline
from tests.examples.tiny import TINY


@pytest.mark.parametrize("name", ["gpt2", "resnet18"])
def test_apart_and_together_again(name: str) -> None:
    graph = tensortide.capture(find(name).load(), hyperparameters=TINY[name])
    sums = sums_in_place(graph)
    assert sums
    apart = accumulate_apart(graph, sums)
    validate(apart)
    assert not sums_in_place(apart)
    assert len(apart.storages) == len(graph.storages) + len(sums)
    before, after = timeline(graph, workspace=False).resident, timeline(apart, workspace=False).resident
    differs = {op for op in range(len(graph)) if before[op] != after[op]}
    assert differs == {op for op in sums if apart[op].outputs[0].numel}  # both operands and the sum at once
    again = accumulate_in_place(apart, sums)
    assert sums_in_place(again) == sums
    assert timeline(again, workspace=False).resident.tolist() == before.tolist()
    assert accumulate_apart(graph, frozenset()) is graph
