"""The minimal footprint: exact where it can be checked, never worse than the captured order, never below its proof."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide import footprint, timeline
from tensortide.errors import GraphError
from tensortide.graph import Graph, Phase, Role
from tensortide.plans import MinimalFootprint
from tensortide.plans.order.cuts import cut_of, unavoidable
from tensortide.plans.order.incumbent import Budget, Exhausted, Incumbent
from tensortide.plans.order.orders import by_rank, improve, ranks, solve
from tensortide.plans.order.problem import Problem, problem
from tensortide.plans.order.proof import verify
from tensortide.plans.order.search import bisect, explore
from tensortide.replays import replay
from tests.clocks import on_a_loaded_machine
from tests.graphs import Builder, graphs
from tests.plans.dags import all_peaks, by_constraints, joined_chains, random_dag, smallest_peak

DAGS = st.builds(
    random_dag,
    seed=st.integers(0, 10**6),
    ops=st.integers(1, 10),
    sources=st.sampled_from((0, 0.1, 0.3, 0.6)),
    barrier=st.sampled_from((4, 5, 100)),
    given=st.sampled_from((0, 0, 3)),
)


def unlimited() -> Budget:
    return Budget(10**12, 1e9, lambda: True)


@given(graphs(max_ops=5))
@settings(max_examples=30)
def test_it_is_the_least_over_all_orders_that_execute_the_graph(graph: Graph) -> None:
    found = footprint(graph)
    assert found.upper_bytes == found.lower_bytes == min(all_peaks(graph, found.device))


@given(graphs(max_ops=12) | DAGS)
def test_it_is_exact_on_small_graphs(graph: Graph) -> None:
    found = footprint(graph)
    assert found.proved
    assert found.upper_bytes == smallest_peak(problem(graph, found.device))


@pytest.mark.parametrize("graph", [random_dag(3, 20), random_dag(4, 20, 0.4), joined_chains(6, 3)])
def test_it_agrees_with_a_constraint_solver(graph: Graph) -> None:
    assert footprint(graph).upper_bytes == by_constraints(problem(graph, "cpu"))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(random_dag(2, 60, 0.1), marks=pytest.mark.slow),
        joined_chains(16, 3),
        pytest.param(joined_chains(30, 2), marks=pytest.mark.slow),
    ],
)
def test_it_is_proved_for_60_ops_and_more(graph: Graph) -> None:
    found = footprint(graph)
    assert found.proved
    assert replay(graph, found.plan).peak_bytes == found.upper_bytes < found.captured_peak_bytes


@given(graphs(max_ops=25, devices=("cpu", "meta")) | st.builds(random_dag, st.integers(0, 10**6), st.integers(1, 25)))
def test_bounds_order_and_proof_hold(graph: Graph) -> None:
    found = footprint(graph, work_limit=30_000)
    assert found.persistent_bytes <= found.lower_bytes <= found.upper_bytes <= found.captured_peak_bytes
    assert found.upper_bytes <= found.footprint_bytes
    assert sorted(found.order) == list(range(len(graph)))
    played = replay(graph, found.plan)
    assert played.peak_bytes == found.upper_bytes
    if len(graph):
        assert found.order[played.peak_op] == found.peak_op
        assert sorted(item.storage for item in played.alive()) == list(found.residents)
        assert sum(item.nbytes for item in played.alive()) + found.workspace_bytes == found.upper_bytes


@given(DAGS)
def test_every_proof_can_be_checked(graph: Graph) -> None:
    found = footprint(graph)
    assert verify(graph, found.proof, device=found.device) == found.lower_bytes


@given(graphs(max_ops=20) | DAGS)
def test_the_same_graph_has_the_same_answer(graph: Graph) -> None:
    first, second = (msgspec.json.encode(footprint(graph, work_limit=20_000, time_limit_s=60)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("work", [1_000, 50_000])
def test_a_search_of_limited_work_has_the_same_answer_on_a_loaded_machine(work: int) -> None:
    graph = random_dag(5, 60, 0.15)
    found = footprint(graph, work_limit=work)
    assert on_a_loaded_machine(lambda: footprint(graph, work_limit=work)) == found
    assert found.stop == "work"
    assert on_a_loaded_machine(lambda: footprint(graph)).stop == "time"


@given(DAGS, st.booleans())
def test_each_method_is_right_by_itself(graph: Graph, forward: bool) -> None:
    """The exact search from either end, the one by layers, and branching: the first two prove the optimum alone."""
    stated = problem(graph, "cpu")
    least = smallest_peak(stated)
    searched, layered, branched = Incumbent(stated), Incumbent(stated), Incumbent(stated)
    bisect(layered, unlimited(), 10**6)
    assert (layered.lower, layered.upper) == (least, least)
    assert verify(graph, layered.proof, device="cpu") == least
    explore(searched, unlimited(), forward=forward, states=10**6)
    assert (searched.lower, searched.upper) == (least, least)
    solve(branched, unlimited())
    assert branched.lower <= least <= branched.upper
    assert verify(graph, branched.proof, device="cpu") == branched.lower


@given(DAGS, st.integers(1, 3))
def test_few_sets_of_ops_give_bounds_that_hold(graph: Graph, states: int) -> None:
    stated = problem(graph, "cpu")
    layered = Incumbent(stated)
    bisect(layered, unlimited(), states)
    assert layered.lower <= smallest_peak(stated) <= layered.upper == stated.peak(layered.order)


@pytest.mark.slow
def test_sets_of_more_ops_than_a_word_has_bits() -> None:
    """Three words, and few sets: a step whose parts follow one another."""
    graph = random_dag(1, 130, 0.3, barrier=4)
    stated = problem(graph, "cpu")
    layered, searched = Incumbent(stated), Incumbent(stated)
    bisect(layered, unlimited(), 2_000)
    explore(searched, unlimited(), forward=True, states=10**5)
    assert searched.lower <= layered.lower == layered.upper <= searched.upper
    assert topological(stated, layered.order)


@given(graphs(max_ops=20) | DAGS)
def test_safe_moves_and_cuts_do_no_harm(graph: Graph) -> None:
    stated = problem(graph, "cpu")
    captured = range(len(stated))
    peak = stated.peak(captured)
    settled = by_rank(stated, captured, peak)
    assert stated.peak(settled) <= peak
    assert stated.peak(improve(stated, settled, stated.base, unlimited())) <= stated.peak(settled)
    deep = by_rank(stated, captured, peak, depth_first=True)
    for order in (settled, deep):
        assert topological(stated, order)


@given(st.builds(random_dag, st.integers(0, 10**6), st.integers(1, 25)), st.randoms(use_true_random=False))
def test_what_is_unavoidable_is_resident_in_every_order(graph: Graph, chance: object) -> None:
    stated = problem(graph, "cpu")
    rank = list(range(len(stated)))
    chance.shuffle(rank)  # type: ignore[attr-defined]
    order = by_rank(stated, rank, 0)
    size = {index: storage.nbytes for index, storage in enumerate(graph.storages)}
    levels = stated.levels(order)
    for position, op in enumerate(order):
        sure, resident = unavoidable(stated, op), stated.resident_at(order, position)
        assert set(sure) <= set(resident)
        least = cut_of(stated, op, unlimited()).nbytes + stated.needs[op]
        assert sum(size[s] for s in sure) <= least <= levels[position] == sum(size[s] for s in resident)


def topological(stated: Problem, order: list[int]) -> bool:
    at = ranks(order)
    ordered = all(at[earlier] < at[op] for op, needed in enumerate(stated.before) for earlier in needed)
    return ordered and sorted(order) == list(range(len(stated)))


@given(graphs(max_ops=25))
def test_the_captured_order_has_the_peak_of_the_timeline(graph: Graph) -> None:
    assert footprint(graph, work_limit=0).captured_peak_bytes == timeline(graph, lifetimes="last_use").peak_bytes


def forked(kept: Role, reader: Phase) -> Graph:
    """x -> a; x -> b; a result that the step leaves behind and that an op of phase ``reader`` reads."""
    builder = Builder()
    x = builder.storage(10, Role.INPUT)
    result = builder.storage(100, kept, birth=0)
    builder.op([x], [result])
    builder.op([result], [builder.storage(1, birth=1, death=2)], phase=reader)
    builder.op([x], [builder.storage(200, birth=2, death=3)])
    return builder.graph()


@pytest.mark.parametrize(
    ("role", "reader", "captured"),
    [
        (Role.OUTPUT, Phase.FORWARD, 310),
        (Role.GRADIENT, Phase.BACKWARD, 310),
        (Role.GRADIENT, Phase.OPTIMIZER, 210),
    ],
)
def test_what_the_step_leaves_behind_stays_unless_it_waits_for_zero_grad(
    role: Role, reader: Phase, captured: int
) -> None:
    found = footprint(forked(role, reader))
    assert (found.captured_peak_bytes, found.upper_bytes, found.persistent_bytes) == (captured, 210, 10)


def test_what_the_step_finds_and_releases_stays_until_its_last_use() -> None:
    """x (100) exists before the step and is released in it: reading it before y is made saves its bytes."""
    builder = Builder()
    x, y = builder.storage(100, death=3), builder.storage(60, birth=0, death=3)
    builder.op([], [y])
    builder.op([x], [builder.storage(10, birth=1)])
    builder.op([y])
    found = footprint(builder.graph())
    assert (found.captured_peak_bytes, found.upper_bytes, found.persistent_bytes, found.proved) == (170, 110, 0, True)
    assert found.order[0] == 1
    assert verify(builder.graph(), found.proof, device="cpu") == 110


def test_writes_keep_their_place_among_reads() -> None:
    """y = x + 1; x += 1; z = x + 1: no order may read what it should not, though it would save memory."""
    builder = Builder()
    x = builder.storage(8, Role.PARAMETER)
    y, z = builder.storage(100, birth=0, death=4), builder.storage(1, birth=2, death=4)
    builder.op([x], [y])
    builder.op([x], [x], mutated=(0,))
    builder.op([x], [z])
    builder.op([y], [])
    graph = builder.graph()
    assert problem(graph, "cpu").before == [[], [0], [1], [0]]
    assert footprint(graph).upper_bytes == 108
    assert footprint(graph).order.index(3) < footprint(graph).order.index(2)


def test_devices_are_counted_apart() -> None:
    builder = Builder()
    a = builder.storage(100, birth=0, death=2, device="cuda:0")
    b = builder.storage(30, birth=1, death=2, device="cpu")
    builder.op([], [a])
    builder.op([a], [b])
    graph = builder.graph()
    assert footprint(graph).device == "cuda:0"
    assert footprint(graph).upper_bytes == 100
    assert footprint(graph, device="cpu").upper_bytes == 30
    with pytest.raises(GraphError, match="nothing is on device 'cuda:1'"):
        footprint(graph, device="cuda:1")


def test_an_empty_step() -> None:
    found = footprint(Builder().graph())
    assert (found.lower_bytes, found.upper_bytes, found.peak_op, found.proved) == (0, 0, -1, True)


def test_the_search_ends_when_it_is_told() -> None:
    """With bounds that hold: what was found until then."""
    seen: list[tuple[int, int]] = []

    def watch(lower: int, upper: int) -> bool:
        seen.append((lower, upper))
        return False

    graph = random_dag(5, 60, 0.15)
    stopped = footprint(graph, watch=watch)
    assert stopped.stop == "stopped"
    assert not stopped.proved
    assert seen == [(stopped.lower_bytes, stopped.upper_bytes)]
    late = footprint(graph, time_limit_s=0)
    assert late.stop == "time"
    assert footprint(graph, work_limit=0).stop == "work"
    assert late.lower_bytes <= late.upper_bytes <= late.captured_peak_bytes


def test_a_budget_that_is_spent_says_why() -> None:
    budget = Budget(10, 60, lambda: True)
    budget.spend(10)
    with pytest.raises(Exhausted):
        budget.spend(1)
    assert budget.stop == "work"


def test_result_is_data() -> None:
    found = footprint(random_dag(1, 20))
    assert msgspec.json.decode(msgspec.json.encode(found), type=MinimalFootprint) == found
