"""Budgets that no plan fits: an op that needs more by itself, and the options that are not excluded."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from tensortide import plan
from tensortide.errors import PlanError
from tensortide.graph import Graph, GraphBuilder
from tensortide.plans.instance import Instance, instance
from tensortide.plans.under_budget.idle import least_in_any_order, least_of_one_op
from tensortide.plans.under_budget.sequence import evaluate
from tensortide.plans.under_budget.tables import tables
from tensortide.timing import LINKS
from tests.graphs import stored
from tests.plans.dags import random_dag


def step() -> Graph:
    """w and x stay throughout: 0: a = sin(x); 1: b = cos(a), the large one; 2: c = -b; 3: a result of w and c."""
    builder = GraphBuilder()
    w, x = builder.state("w", (100,)), builder.state("x", (10,))
    a = builder.op("aten.sin.default", x, out=(10,))
    b = builder.op("aten.cos.default", a, out=(40,))
    c = builder.op("aten.neg.default", b, out=(5,))
    builder.op("aten.mv.default", w, c, out=(5,))
    return builder.build()


def made(graph: Graph) -> Instance:
    return instance(graph, "cpu", [1] * len(graph), workspace=False)


def test_an_op_that_needs_more_than_the_budget_is_found_without_a_search() -> None:
    graph = step()
    least = least_of_one_op(made(graph))
    assert (least.op, least.nbytes) == (3, 4 * (100 + 5 + 5))
    for links in ((), (LINKS["pcie4"],)):
        found = plan(graph, least.nbytes - 1, durations_ns=[1] * 4, links=links)
        assert (found.status, found.one_op, found.may_help) == ("infeasible", True, ())
        assert (found.work, found.rivals, found.least) == (0, (), least)
    assert not plan(graph, least.nbytes, durations_ns=[1] * 4, effort=0).one_op


def test_options_that_are_excluded_are_not_named() -> None:
    graph = step()  # without moves w and x stay in any order, beside a and b
    for budget_bytes in (4 * 110, 4 * (100 + 10 + 10 + 40) - 1):
        found = plan(graph, budget_bytes, durations_ns=[1] * 4)
        assert (found.status, found.one_op, found.may_help) == ("infeasible", False, ("--offload host",))
    assert plan(graph, 4 * (100 + 10 + 10 + 40), durations_ns=[1] * 4).status == "fits"


def sequences(one: Instance) -> Iterator[tuple[int, ...]]:
    """Every order in which each op runs after those that make what it reads, alone and with one op run again later."""
    makers = {storage: number for number, op in enumerate(one.ops) for storage in op.makes}
    needs = [{makers[storage] for storage in op.reads if storage in makers} for op in one.ops]
    for order in itertools.permutations(range(len(one.ops))):
        if any(need - {*order[:at]} for at, need in enumerate(needs[op] for op in order)):
            continue
        yield order
        for at in range(2, len(order)):
            yield from ((*order[:at], again, *order[at:]) for again in order[: at - 1])


@pytest.mark.parametrize("seed", range(8))
def test_no_order_needs_less_than_the_bound_of_all_orders(seed: int) -> None:
    one = made(step() if not seed else random_dag(seed, 5))
    t, least, peaks = tables(one), least_in_any_order(one).nbytes, list[int]()
    for order in sequences(one):
        with contextlib.suppress(PlanError):  # it overwrites what another op reads
            peaks.append(evaluate(one, t, order).peak_bytes)
    assert least_of_one_op(one).nbytes <= least <= min(peaks)


def test_the_least_budget_is_looked_for_all_the_same() -> None:
    graph = stored("mlp")
    found = plan(graph, least_of_one_op(made(graph)).nbytes - 1, effort=0.01)
    assert found.one_op
    assert found.enough_bytes is not None
    assert plan(graph, found.enough_bytes, effort=0.01).status == "fits"
