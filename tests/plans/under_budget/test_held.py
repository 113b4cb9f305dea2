"""A program that follows a plan holds what it has not released, unless that can be recomputed for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tensortide.graph import Graph, GraphBuilder
from tensortide.plans import in_order
from tensortide.plans.instance import Instance, instance
from tensortide.plans.under_budget.held import followed, with_held
from tensortide.plans.under_budget.tables import tables

NBYTES = 16


def step(*, overwritten: bool, release: int) -> Graph:
    """0: a = sin(x); 1: b = cos(a); 2: x += b, or x + b; 3: -b; 4: abs of that. a is released before op ``release``."""
    builder = GraphBuilder()
    x = builder.state("x", (4,))
    a = builder.op("aten.sin.default", x, out=(4,))
    b = builder.op("aten.cos.default", a, out=(4,))
    if overwritten:
        builder.op("aten.add_.Tensor", x, b, out=x, mutates=[x])
    else:
        builder.op("aten.add.Tensor", x, b, out=(4,))
    builder.op("aten.abs.default", builder.op("aten.neg.default", b, out=(4,)), out=(4,))
    graph = builder.build()
    storages = [replace(each, death=release) if number == 1 else each for number, each in enumerate(graph.storages)]
    return replace(graph, storages=tuple(storages))


def held(graph: Graph) -> Instance:
    return with_held(instance(graph, "cpu", [1] * len(graph)), graph, "cpu")


@pytest.mark.parametrize("overwritten", [True, False])
def test_what_cannot_be_recomputed_is_held_until_its_release(overwritten: bool) -> None:
    found = held(step(overwritten=overwritten, release=5))
    assert [number for number, op in enumerate(found.ops) if 1 in op.reads] == ([1, 4] if overwritten else [1])
    assert [number for number, op in enumerate(found.ops) if 1 in op.blind] == ([4] if overwritten else [])


def test_what_is_released_after_its_last_use_is_not_held() -> None:
    graph = step(overwritten=True, release=2)
    assert held(graph).ops == instance(graph, "cpu", [1] * len(graph)).ops


@pytest.mark.parametrize("overwritten", [True, False])
def test_the_peak_of_a_run_has_what_is_held(overwritten: bool) -> None:
    """Storages of 16 bytes: x, b, what op 3 makes of it, and a where that cannot be recomputed."""
    graph = step(overwritten=overwritten, release=5)
    found = held(graph)
    recorded = in_order(graph, range(len(graph)), "cpu")
    assert followed(found, tables(found), recorded).peak_bytes == (4 if overwritten else 3) * NBYTES
