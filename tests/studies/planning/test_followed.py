"""Plans that a program cannot follow within the budget."""

from __future__ import annotations

from msgspec.structs import replace

from tensortide.graph import Graph, GraphBuilder
from tensortide.plans.remat.schedule import recorded
from tensortide.plans.under_budget.held import followed
from tensortide.plans.under_budget.sequence import sequence_of
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.recomputation import as_followed, without_links

BUDGET = 48 + 160
"""Bytes of x, y and the large result of op 5, and no more."""


def step() -> Graph:
    """0: y = sin(x); 1: a = cos(y); 2: -x; 3: |a|; 4: y += 1; 5: a large result of y; 6: b = exp(a); 7: x += b. The
    program has y until the end."""
    builder = GraphBuilder()
    x = builder.state("x", (4,))
    y = builder.op("aten.sin.default", x, out=(4,))
    a = builder.op("aten.cos.default", y, out=(4,))
    builder.op("aten.neg.default", x, out=(4,))
    builder.op("aten.abs.default", a, out=(4,))
    builder.op("aten.add_.Scalar", y, out=y, mutates=[y])
    builder.op("aten.neg.default", y, out=(44,))
    b = builder.op("aten.exp.default", a, out=(4,))
    builder.op("aten.add_.Tensor", x, b, out=x, mutates=[x])
    graph = builder.build()
    storages = [replace(each, death=8) if number == 1 else each for number, each in enumerate(graph.storages)]
    return replace(graph, storages=tuple(storages))


def test_a_plan_that_recomputes_from_what_the_program_has_overwritten_is_not_taken() -> None:
    graph = step()
    problem = Problem(
        recording=recorded(graph, [1] * 8), device="cpu", budget_bytes=BUDGET, policies=False, partitioner=False
    )
    found = without_links(problem)
    assert found.plan is not None
    assert sequence_of(found.plan.lanes[0].steps) == [0, 1, 2, 3, 4, 5, 0, 1, 6, 7]
    told = as_followed(problem, found)
    assert told.plan is not None
    assert (told.step_ns, told.unfollowed_ns) == (11, 10)
    held = problem.followed({})
    assert followed(held.instance, held.tables, told.plan).peak_bytes <= BUDGET
