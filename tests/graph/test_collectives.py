"""The table of communication ops is complete for those who derive from it; ``tests/run`` compares it with PyTorch."""

from __future__ import annotations

import pytest

from tensortide.cost import Cost, OpCall
from tensortide.cost.evaluate import rule_for
from tensortide.graph.collectives import COLLECTIVES, moves_data
from tests.cost.probe import tensor


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_op_has_a_cost_rule(name: str) -> None:
    assert rule_for(name) is not None


def test_sections_show_what_moves_data_known_or_not() -> None:
    shown = {name for name in COLLECTIVES if moves_data(name.replace("::", ".") + ".default")}
    assert {"c10d::send", "c10d::allreduce_", "_dtensor::shard_dim_alltoall"} <= shown
    assert not {name for name in shown if name.endswith(("barrier", "wait_tensor", "chunk_cat"))}
    assert moves_data("symm_mem.one_shot_all_reduce.default")
    assert not moves_data("aten.add.Tensor")


def test_a_reduction_that_returns_no_tensor_counts_those_that_it_writes() -> None:
    rule = rule_for("c10d::allreduce_coalesced_")
    assert rule is not None
    cost = rule.work(OpCall("c10d::allreduce_coalesced_", {"tensors": (tensor(3), tensor(4))}))
    assert cost == Cost(elementwise_flops=7, exact=False, reason="one operation per element received")
