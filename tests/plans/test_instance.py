"""What planners are told about a step."""

from __future__ import annotations

import pytest
import torch

import tensortide
from tensortide.graph.model import Role
from tensortide.plans.instance import instance
from tests.graphs import Builder


def test_what_the_step_was_given_and_what_native_code_may_have_filled_is_made_once() -> None:
    builder = Builder()
    given, made, empty = (builder.storage(8, birth=birth, death=4) for birth in (0, 1, 2))
    builder.op([], [given], tags=("constant",))
    builder.op([given], [made])
    builder.op([], [empty], name="aten.empty.memory_format")
    builder.op([made, empty], [builder.storage(8, birth=3)])
    assert [op.once for op in instance(builder.graph(), "cpu", [0, 1, 1, 1]).ops] == [True, False, True, False]


@pytest.mark.parametrize(
    ("sizes", "accumulate", "changed", "once"),
    [((6,), False, False, False), ((6,), True, False, True), ((6,), False, True, True), ((2, 3), False, False, True)],
)
def test_what_is_filled_at_the_indices_of_a_sort_may_be_made_again(
    sizes: tuple[int, ...], accumulate: bool, changed: bool, once: bool
) -> None:
    def step() -> torch.Tensor:
        order = torch.randn(sizes).sort()[1]
        if changed:
            order[0] = 0
        inverse = torch.empty_like(order)
        inverse.index_put_((order,), torch.arange(6).view(sizes), accumulate)
        return inverse.sum()

    graph = tensortide.capture(step)
    planned = instance(graph, "cpu", [0] * len(graph))
    assert [op.once for op in planned.ops if op.name == "aten.empty_like.default"] == [once]


def test_the_workspace_of_libraries_stays_where_it_is() -> None:
    builder = Builder()
    builder.storage(8, Role.LIBRARY)
    given = builder.storage(8, Role.PARAMETER)
    builder.op([given], [builder.storage(8, birth=0)])
    assert [storage.pinned for storage in instance(builder.graph(), "cpu", [1]).storages] == [True, False, False]
