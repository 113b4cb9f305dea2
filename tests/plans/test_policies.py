"""Policies by name, their choices on states written by hand, and policies of one's own."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.plans.remat.policies import (
    DEFAULT_POLICY,
    POLICIES,
    Heuristic,
    Random,
    Row,
    Sampled,
    State,
    Work,
    contenders,
    policy,
)
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.simulator import best, candidates
from tensortide.studies.remat.designs import contest
from tests.replays.remat.steps import random_graph


@dataclass
class Seen:
    """Four storages that are there (0 to 3), and evicted ones above and below the first two."""

    clock_ns: int = 100
    storage_bytes: list[int] = field(default_factory=lambda: [10, 20, 40, 0, 5, 5, 5])
    last_access_ns: list[int] = field(default_factory=lambda: [90, 50, 80, 60, 95, 20, 30])
    work_ns: list[int] = field(default_factory=lambda: [30, 30, 10, 7, 100, 200, 300])

    def evicted_ancestors(self, storage: int) -> Collection[int]:
        return {0: {4, 5}, 1: {5}}.get(storage, set())

    def evicted_descendants(self, storage: int) -> Collection[int]:
        return {0: {5, 6}}.get(storage, set())

    def evicted_classes_ns(self, storage: int) -> int:
        return {0: 600, 1: 200}.get(storage, 0)


INFINITE = float("inf")
PROTOTYPE = {
    "DTR": "dtr",
    "DTREqClass": "dtr-eq",
    "DTRLocal": "dtr-local",
    "DTRUnopt": "dtr-unopt",
    "MSPS": "msps",
    "LRU": "lru",
    "LargestStorage": "size",
    "RandomStorage": "random",
    "AbRandom": "random",
    "AbESizeStale": "e-size-stale",
    "AbESize": "e-size",
    "AbEStale": "e-stale",
    "AbE": "e",
    "AbEqSizeStale": "eq-size-stale",
    "AbEqSize": "eq-size",
    "AbEqStale": "eq-stale",
    "AbEq": "eq",
    "AbLocalSizeStale": "local-size-stale",
    "AbLocalSize": "local-size",
    "AbLocalStale": "local-stale",
    "AbLocal": "local",
    "AbSizeStale": "one-size-stale",
    "AbSize": "one-size",
    "AbStale": "one-stale",
}
"""Names in files of the DTR prototype, and ours."""


@pytest.mark.parametrize(
    ("name", "costs"),
    [
        ("dtr", [830 / 100, 230 / 1000, 10 / 800, INFINITE]),
        ("dtr-eq", [630 / 100, 230 / 1000, 10 / 800, INFINITE]),
        ("dtr-local", [30 / 100, 30 / 1000, 10 / 800, INFINITE]),
        ("dtr-unopt", [630 / 50, 230 / 1000, 10 / 800, INFINITE]),
        ("msps", [330 / 10, 230 / 20, 10 / 40, INFINITE]),
        ("lru", [90, 50, 80, 60]),
        ("size", [1 / 10, 1 / 20, 1 / 40, INFINITE]),
        ("e", [830, 230, 10, 7]),
        ("e-size", [83, 11.5, 0.25, INFINITE]),
        ("e-stale", [83, 4.6, 0.5, 7 / 40]),
        ("eq", [630, 230, 10, 7]),
        ("local-stale", [3, 0.6, 0.5, 7 / 40]),
        ("one-size-stale", [1 / 100, 1 / 1000, 1 / 800, INFINITE]),
        ("one-stale", [1 / 10, 1 / 50, 1 / 20, 1 / 40]),
    ],
)
def test_costs(name: str, costs: list[float]) -> None:
    chosen = policy(name)
    assert isinstance(chosen, Heuristic)
    assert [chosen.cost(storage, Seen()) for storage in range(4)] == costs
    assert chosen.choose(range(4), Seen()) == (min(range(4), key=lambda s: (costs[s], -s)), 4)


def test_of_equals_the_last_goes_and_nothing_is_looked_at_behind_what_is_free() -> None:
    chosen = policy("local")
    assert chosen.choose([0, 1], Seen()) == (1, 2)
    assert chosen.choose([1, 0], Seen()) == (0, 2)
    free = Seen(work_ns=[30, 0, 0, 7])
    assert chosen.choose([0, 1, 2, 3], free) == (1, 2)
    assert policy("size").choose([3, 3], Seen()) == (3, 2)


def test_names() -> None:
    for name in (*POLICIES, "random:7", "dtr-eq+sqrt", "lru+large"):
        assert policy(name).name == name
    assert policy("dtr-eq+large+sqrt").name == "dtr-eq+sqrt+large"
    for theirs, ours in PROTOTYPE.items():
        assert policy(theirs) == policy(ours)
    assert {theirs for row in POLICIES.values() for theirs in row.prototype} == PROTOTYPE.keys()
    assert sum(row.cell for row in POLICIES.values()) == 15
    cell = ("work", "size", "staleness")
    for name, same in (("dtr", "e-size-stale"), ("dtr-eq", "eq-size-stale"), ("dtr-local", "local-size-stale")):
        assert [getattr(policy(name), part) for part in cell] == [getattr(policy(same), part) for part in cell]


@pytest.mark.parametrize("name", POLICIES)
def test_every_row_is_complete(name: str) -> None:
    row = POLICIES[name]
    chosen = row.make(3)
    assert chosen.name == (f"{name}:3" if row.seeded else name)
    assert row.prototype
    chosen.begin()
    found, looked = chosen.choose([2, 0, 1], Seen())
    assert found in (0, 1, 2)
    assert looked in (1, 3)
    assert (name in contenders()) == row.contender
    assert (name in contenders(seeded=False)) == (row.contender and not row.seeded)
    assert {f"{name}:0", f"{name}:3"} <= {*candidates()} if row.seeded else name in candidates()


def test_the_default_comes_first() -> None:
    assert candidates()[0] == DEFAULT_POLICY
    assert len({*candidates()}) == len(candidates())


@pytest.mark.parametrize(
    "name",
    ["", "dtr+", "DTR-EQ", "random:x", "random:-1", "random+sqrt", "dtr+sqrt+sqrt", "dtr+other", "+sqrt"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(PlanError, match=r"there is no policy .* there are dtr, dtr-eq, .*random"):
        policy(name)


@given(seed=st.integers(0, 2**64), sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_random_is_that_of_python(seed: int, sizes: list[int]) -> None:
    chosen, dice = Random(seed), random.Random(seed)
    for _ in range(2):
        chosen.begin()
        dice.seed(seed)
        assert [chosen.choose(range(size), Seen()) for size in sizes] == [
            (dice.choice(range(size)), 1) for size in sizes
        ]


@given(count=st.integers(1, 400), seed=st.integers(0, 9))
def test_a_sample_is_drawn_in_strides(count: int, seed: int) -> None:
    state = Seen(storage_bytes=[1] * count, last_access_ns=list(range(1, count + 1)), work_ns=[1] * count)
    seen: list[Sequence[int]] = []

    class Watching(Heuristic):
        def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
            seen.append(list(pool))
            return super().choose(pool, state)

    sampled = Sampled(Watching("w", Work.LAST_ACCESS), seed=seed)
    sampled.begin()
    assert sampled.choose(range(count), state) == (0, len(seen[0]))
    strides = [after - before for before, after in zip(seen[0], seen[0][1:], strict=False)]
    assert all(1 <= stride <= max(1, int(count**0.5)) for stride in strides)
    assert count - seen[0][-1] <= max(1, int(count**0.5))


def test_small_storages_are_passed_over() -> None:
    state = Seen(storage_bytes=[1, 1000, 1000, 0], last_access_ns=[1, 3, 2, 0])
    assert policy("lru").choose(range(4), state)[0] == 3
    assert policy("lru+large").choose(range(4), state) == (2, 2)
    assert policy("lru+large").choose([3, 3], Seen()) == (3, 2)


class Newest:
    """A policy of one's own: what entered last."""

    name = "newest"
    began = 0

    def begin(self) -> None:
        self.began += 1

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        assert len(pool)
        assert state.clock_ns >= max(state.last_access_ns)
        return pool[-1], 1


def test_a_policy_of_ones_own_is_played() -> None:
    graph = random_graph(random.Random(5), 60, in_place=0.0, kept=0.02)
    sim = Simulator(recorded(graph, [10] * len(graph)))
    own = Newest()
    assert not sim.has_kernel(own)
    run = sim.run(own, int(sim.baseline_bytes * 0.9))
    assert (run.policy, run.status, own.began) == ("newest", "ok", 1)
    assert run.evaluations > 0
    assert run.timeline().peak_bytes == run.peak_bytes <= sim.baseline_bytes * 0.9
    assert sim.run("lru+sqrt", int(sim.baseline_bytes * 0.9)).policy == "lru+sqrt"
    for refused in (own, "lru+sqrt"):
        with pytest.raises(PlanError, match="the compiled engine does not play"):
            sim.run(refused, compiled=True)


def test_a_new_row_is_a_new_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "newest", Row(lambda seed: Newest(), ("Newest",), contender=True))
    sim = Simulator(recorded(random_graph(random.Random(5), 60, in_place=0.0, kept=0.02), [10] * 60))
    assert sim.run("newest", int(sim.baseline_bytes * 0.9)).policy == sim.run("Newest").policy == "newest"
    assert "newest" in {run.policy for run in best(sim, int(sim.baseline_bytes * 0.9))[1]}
    assert contest(contenders())[-1].policies == ("newest",)
    with pytest.raises(PlanError, match=r"there are dtr, .*newest"):
        policy("newest+sqrt")


def test_what_no_run_can_be_asked_for() -> None:
    sim = Simulator(recorded(random_graph(random.Random(5), 10), [10] * 10))
    with pytest.raises(PlanError, match="a budget of -1 bytes"):
        sim.run("lru", -1)
    with pytest.raises(PlanError, match=r"an overhead limit of 0.5"):
        sim.run("lru", overhead_limit=0.5)
    with pytest.raises(PlanError, match="there is no policy 'best'"):
        sim.run("best")
