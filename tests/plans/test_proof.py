"""A proof that was tampered with is refused: what it claims is derived from the graph, not read from it."""

from __future__ import annotations

import msgspec
import pytest

from tensortide import footprint
from tensortide.errors import PlanError
from tensortide.graph import Graph, Role
from tensortide.plans.order.incumbent import Budget, Incumbent
from tensortide.plans.order.orders import solve
from tensortide.plans.order.problem import problem
from tensortide.plans.order.proof import Cut, Either, Exhausted, Persistent, verify
from tests.graphs import Builder
from tests.plans.dags import joined_chains, random_dag


def saved_activations(layers: int = 4) -> Graph:
    """A chain forth and back that keeps every result for the way back; one op beside it that may run at any time."""
    builder = Builder()
    x = builder.storage(50, Role.INPUT)
    forth = [x]
    for layer in range(layers):
        forth.append(builder.storage(100, birth=len(builder.ops), death=2 * layers - layer))
        builder.op(forth[-2:-1], forth[-1:])
    back = forth[-1]
    for layer in reversed(range(layers)):
        gradient = builder.storage(10, birth=len(builder.ops), death=len(builder.ops) + 2)
        builder.op([back, forth[layer + 1]], [gradient])
        back = gradient
    builder.op([back, x], [builder.storage(5, birth=len(builder.ops))])
    return builder.graph()


def test_a_cut_is_added_up() -> None:
    graph = saved_activations()
    found = footprint(graph)
    assert isinstance(found.proof, Cut)
    assert found.certificate == "unavoidable set"
    assert verify(graph, found.proof, device="cpu") == found.lower_bytes == found.upper_bytes == 50 + 400 + 10


@pytest.mark.parametrize("change", ["more", "elsewhere", "negative", "unknown"])
def test_a_flow_that_is_none_is_refused(change: str) -> None:
    graph = saved_activations()
    proof = footprint(graph).proof
    assert isinstance(proof, Cut)
    (storage, user, nbytes), *others = proof.storages
    wrong = {
        "more": (storage, user, nbytes + 1),
        "elsewhere": (storage, len(graph) - 1, nbytes),
        "negative": (storage, user, -nbytes),
        "unknown": (10**6, user, nbytes),
    }[change]
    with pytest.raises(PlanError, match="cannot flow"):
        verify(graph, msgspec.structs.replace(proof, storages=(wrong, *others)), device="cpu")


def test_a_flow_must_go_on() -> None:
    """x -> a -> c and x -> b -> c: b need not run before a, so nothing may end there."""
    builder = Builder()
    outputs = [builder.storage(10, birth=i, death=4) for i in range(4)]
    for i, inputs in enumerate(([], [0], [0], [1, 2])):
        builder.op([outputs[j] for j in inputs], [outputs[i]])
    graph = builder.graph()
    assert verify(graph, Cut(1, ((0, 1, 10),), ()), device="cpu") == 20
    with pytest.raises(PlanError, match="op 2 does not send on"):
        verify(graph, Cut(1, ((0, 2, 10),), ()), device="cpu")
    with pytest.raises(PlanError, match="from op 2 to op 1"):
        verify(graph, Cut(1, (), ((2, 1, 5),)), device="cpu")
    for strange in (Cut(9, (), ()), Cut(1, (), ((-1, 0, 5),)), Either(0, 9, Persistent(), Persistent())):
        with pytest.raises(PlanError, match="there is no op"):
            verify(graph, strange, device="cpu")


def test_cases_are_both_needed() -> None:
    graph = joined_chains(6, 3)
    stated = problem(graph, "cpu")
    best = Incumbent(stated)
    solve(best, Budget(10**9, 60, lambda: True))
    assert isinstance(best.proof, Either)
    assert verify(graph, best.proof, device="cpu") == best.lower == best.upper
    with pytest.raises(PlanError, match="neither before nor after itself"):
        verify(graph, msgspec.structs.replace(best.proof, second=best.proof.first), device="cpu")
    weak = msgspec.structs.replace(best.proof, after=Persistent())
    assert verify(graph, weak, device="cpu") == 0


def test_a_search_is_done_again() -> None:
    graph = random_dag(7, 14)
    least = footprint(graph).upper_bytes
    assert verify(graph, Exhausted(least, forward=True), device="cpu") == least
    with pytest.raises(PlanError, match="exists"):
        verify(graph, Exhausted(least + 1, forward=True), device="cpu")
