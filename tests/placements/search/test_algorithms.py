"""Every algorithm: against brute force, exact counts, repeatable, resumed, interrupted."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tensortide
from tensortide.errors import MissingExtra, OutputError, PlacementError
from tensortide.placements import PartitionProblem
from tensortide.placements.graphs import Grouping, PlaceOptions, ready
from tensortide.placements.partitions.workload import Edge, Node, Workload
from tensortide.placements.search import ALGORITHMS, COMPARED, Budget, algorithm
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.annealing import DualAnnealing, SimulatedAnnealing
from tensortide.placements.search.best import Best
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.hill import RandomHillClimbing
from tensortide.placements.search.map_elites import MapElites
from tensortide.placements.search.options import configured
from tensortide.placements.search.session import Progress
from tensortide.timing.links import Link
from tests.examples.tiny import TINY
from tests.marks import some_slow
from tests.placements.graphs.steps import cluster as gpus
from tests.placements.search.doubles import InOrder, random_problem

QUICK = list(COMPARED)


def quick(name: str) -> Search:
    """The algorithm; the best plans briefly."""
    search = algorithm(name)
    return replace(search, planned=300) if isinstance(search, Best) else search


def brute_force(problem: InOrder) -> float:
    rows = itertools.product(range(problem.devices), repeat=len(problem.names))
    return float(problem.evaluate(np.array([*rows]))[0].min())


@pytest.mark.parametrize(
    ("seed", "room"),
    some_slow(itertools.product(range(4), (10.0, 1.3)), [(0, 1.3), (2, 10.0), (3, 10.0), (3, 1.3)]),
)
def test_exhaustive_constraint_programming_and_search_find_the_optimum_of_brute_force(seed: int, room: float) -> None:
    problem = random_problem(seed, genes=5, room=room)
    optimum = brute_force(problem)
    for name in ("exhaustive", "cp", "best"):
        found = algorithm(name).search(problem, 2000, seed)
        assert found.score_ms == pytest.approx(optimum, rel=1e-12)
        assert (found.proved, found.gap_share, found.bound_ms) == (True, 0.0, found.score_ms)


def test_constraint_programming_proves_nothing_by_chains_that_are_no_bound() -> None:
    graph = tensortide.capture("mlp", hyperparameters=TINY["mlp"], real=True)
    wire = Link("wire", Fraction(10**12), 2_000)
    units = ready(graph, gpus(2, wire), PlaceOptions(grouping=Grouping(by="closure", most=6))).problem
    nodes = [Node(id=i, cpu_latency=9.0, fpga_latency=float(2 + i), size=0.0) for i in range(4)]
    edges = [Edge(source_id=i, dest_id=i + 1, cost=0.1) for i in range(3)]
    split = PartitionProblem(Workload("line", tuple(nodes), tuple(edges), 0, 2, 1e9))
    for problem in (units, split):
        proved, least = (algorithm(name).search(problem, 500) for name in ("cp", "exhaustive"))
        assert proved.proved
        assert proved.score_ms == pytest.approx(least.score_ms, rel=1e-12)


@pytest.mark.parametrize("name", ["exhaustive", "best"])
@pytest.mark.parametrize("genes", [3, 8])
def test_a_budget_of_as_many_proposals_as_there_are_placements_proves_the_optimum(name: str, genes: int) -> None:
    problem = random_problem(3, genes=genes, room=1.3)
    found = quick(name).search(problem, problem.devices**genes)
    assert found.proved
    assert found.score_ms == pytest.approx(brute_force(problem), rel=1e-12)


def test_annealing_by_runs_finds_the_optimum_that_constraint_programming_proves() -> None:
    problem = random_problem(11, genes=8, devices=3, room=10.0)
    proved = algorithm("cp").search(problem, 5000)
    assert proved.proved
    assert Best(planned=300).search(problem, 3000).score_ms == pytest.approx(proved.score_ms, rel=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_result_is_what_the_simulator_says_and_no_worse_than_any_single_device(name: str) -> None:
    problem = random_problem(5, genes=5, room=10.0)
    found = quick(name).search(problem, 400, 1)
    score, over = problem.evaluate(np.array([found.placement]))
    assert (found.score_ms, found.over_bytes) == (score[0], over[0])
    single = problem.evaluate(np.repeat(np.arange(3)[:, None], 5, axis=1))[0].min()
    assert found.single_ms == single >= found.score_ms >= found.bound_ms * (1 - 1e-12)


@pytest.mark.parametrize("name", QUICK)
def test_counts_are_those_of_the_simulator_and_within_the_budget(name: str) -> None:
    problem = random_problem(2, genes=14)
    found = quick(name).search(problem, 333, 3)
    assert problem.simulated == found.evaluations <= found.proposals <= 333


@pytest.mark.parametrize("name", QUICK)
def test_the_number_of_threads_changes_nothing(name: str) -> None:
    one, two = (quick(name).search(random_problem(4, genes=12), 300, 7, threads=threads) for threads in (1, 2))
    assert replace(one, cpu_s=0) == replace(two, cpu_s=0)


@pytest.mark.parametrize("name", QUICK)
def test_a_search_resumes_from_what_it_simulated_as_if_it_had_not_stopped(name: str, tmp_path: Path) -> None:
    problem = random_problem(6, genes=12)
    whole = quick(name).search(problem, 300, 5)
    file = tmp_path / "search.state"
    stopped = quick(name).search(problem, 300, 5, checkpoint=file, stop=_after(3))
    problem.simulated = 0
    resumed = quick(name).search(problem, 300, 5, checkpoint=file)
    assert resumed.resumed == stopped.evaluations
    assert problem.simulated == whole.evaluations - stopped.evaluations
    assert replace(resumed, resumed=0, cpu_s=0) == replace(whole, cpu_s=0)


@pytest.mark.parametrize("name", ["best", "random"])
def test_a_shorter_run_keeps_what_the_file_holds_and_reports_its_best(name: str, tmp_path: Path) -> None:
    problem, file = random_problem(6, genes=12), tmp_path / "search.state"
    whole = quick(name).search(problem, 300, 5, checkpoint=file)
    for shorter in (Budget(20), Budget(300, wall_s=0.0)):
        found = quick(name).search(problem, shorter, 5, checkpoint=file)
        assert (found.score_ms, found.placement) == (whole.score_ms, whole.placement)
        assert found.history[-1].score_ms == found.score_ms
    stopped = quick(name).search(problem, 300, 5, checkpoint=file, stop=lambda: True)
    assert (stopped.ended, stopped.score_ms, stopped.proposals) == ("interrupted", whole.score_ms, 0)
    problem.simulated = 0
    again = quick(name).search(problem, 300, 5, checkpoint=file)
    assert (problem.simulated, again.resumed) == (0, whole.evaluations)


def test_a_search_goes_on_where_its_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, file = random_problem(6, genes=12), tmp_path / "search.state"
    whole = algorithm("random").search(problem, 300, 5)
    algorithm("random").search(problem, 200, 5, checkpoint=file)
    before = file.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OutputError("cannot write search.state: the disk is full.")

    monkeypatch.setattr("tensortide.placements.search.checkpoint.write_file", full)
    found = algorithm("random").search(problem, 300, 5, checkpoint=file)
    assert (found.placement, found.score_ms, found.ended) == (whole.placement, whole.score_ms, "budget")
    assert found.unsaved == "cannot write search.state: the disk is full."
    assert file.read_bytes() == before
    with pytest.raises(OutputError, match="is a directory"):
        algorithm("random").search(problem, 300, 5, checkpoint=tmp_path)


def test_the_best_of_a_file_on_devices_that_are_not_allowed_is_not_reported(tmp_path: Path) -> None:
    problem, file = random_problem(6, genes=12), tmp_path / "search.state"
    algorithm("random").search(problem, 300, 5, checkpoint=file)
    assert set(algorithm("random").search(problem, 20, 5, allowed=[0, 2], checkpoint=file).placement) <= {0, 2}


def test_a_file_of_another_search_names_what_differs(tmp_path: Path) -> None:
    problem, file = random_problem(6, genes=12), tmp_path / "search.state"
    Genetic(mutation_rate=0.5).search(problem, 30, 5, checkpoint=file)
    others = {
        "algorithm is genetic, not random": (algorithm("random"), 5),
        "mutation_rate is 0.5, not 0.05": (Genetic(), 5),
        "seed is 5, not 6": (Genetic(mutation_rate=0.5), 6),
    }
    for said, (search, seed) in others.items():
        with pytest.raises(PlacementError) as error:
            search.search(problem, 30, seed, checkpoint=file)
        assert str(error.value).startswith(
            f"{file} is of another search: its {said}.\nDelete it, or give another file "
        )
        assert "--out" in str(error.value)


@pytest.mark.parametrize("number", [-5, 3])
def test_a_file_with_a_number_of_no_device_is_damaged(number: int, tmp_path: Path) -> None:
    problem, file = random_problem(6, genes=12), tmp_path / "search.state"
    algorithm("random").search(problem, 30, 5, checkpoint=file)
    stored = msgspec.msgpack.decode(file.read_bytes())
    stored["rows"] = np.int16(number).tobytes() + stored["rows"][2:]
    file.write_bytes(msgspec.msgpack.encode(stored))
    with pytest.raises(PlacementError, match=r"search\.state is no file to resume a search from: it is damaged"):
        algorithm("random").search(problem, 30, 5, checkpoint=file)


def test_a_space_that_the_budget_covers_is_enumerated_and_proved() -> None:
    problem = random_problem(8, genes=5, devices=3, room=10.0)
    found = Best().search(problem, 250)
    assert 3**5 == 243 == found.evaluations
    assert (found.proved, found.ended, found.score_ms) == (True, "proved", brute_force(problem))
    assert Best().search(problem, Budget(243 + 3)).proved
    timed = Best(planned=300).search(random_problem(8, genes=8, devices=3, room=10.0), Budget(6_600, wall_s=600.0))
    assert (timed.ended, timed.evaluations < 6_561) == ("budget", True)


def test_annealing_ends_where_the_bound_is_reached() -> None:
    work = np.random.default_rng(0).integers(50, 250, 16).astype(float)
    work[-1] += work.sum() % 2  # two devices may have equal loads
    none = np.zeros((0, 2), np.int64)
    problem = InOrder(none, work[:, None].repeat(2, axis=1), np.zeros((0, 2, 2)), np.ones(16), np.full(2, 100.0))
    found = Best().search(problem, 100_000)
    assert (found.score_ms, found.ended, found.proved) == (work.sum() / 2, "proved", True)
    assert 50 < found.proposals < 50_000


def _after(calls: int) -> Callable[[], bool]:
    count = itertools.count()
    return lambda: next(count) >= calls


def test_an_interrupted_search_returns_the_best_so_far() -> None:
    scores: list[float] = []

    def watch(progress: Progress) -> None:
        scores.append(progress.score_ms)
        if len(scores) == 5:
            raise KeyboardInterrupt

    found = Best(planned=300).search(random_problem(1, genes=30), 5000, watch=watch)
    assert (found.ended, found.score_ms) == ("interrupted", min(scores))
    assert found.history[-1].score_ms == found.score_ms


def test_a_budget_of_distinct_placements_ends_a_search_of_few() -> None:
    problem = random_problem(1, genes=12)
    found = algorithm("random").search(problem, Budget(proposals=10_000, evaluations=50))
    assert (found.evaluations, problem.simulated, found.ended) == (50, 50, "budget")


def test_a_time_limit_ends_a_search_that_has_placements_left() -> None:
    found = algorithm("random").search(random_problem(1, genes=12), Budget(proposals=10**9, cpu_s=0.05))
    assert found.ended == "time"


def test_a_time_limit_does_not_count_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = itertools.count(0.0, 1000.0)
    monkeypatch.setattr("tensortide.placements.search.session.compiling_s", lambda: next(compiling))
    found = algorithm("random").search(random_problem(1, genes=12), Budget(proposals=2000, wall_s=60.0))
    assert found.ended == "budget"


def test_threads_and_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlacementError, match="0 threads"):
        algorithm("random").search(random_problem(1), 50, threads=0)
    with pytest.raises(PlacementError, match="below 0 s"):
        Budget(50, wall_s=-1.0)


def test_a_file_of_another_search_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "search.state"
    algorithm("random").search(random_problem(1), 50, 0, checkpoint=file)
    with pytest.raises(PlacementError, match="another search: its seed is 0, not 1"):
        algorithm("random").search(random_problem(1), 50, 1, checkpoint=file)
    with pytest.raises(PlacementError, match=r"search\.state belongs to another problem"):
        algorithm("random").search(random_problem(2), 50, 0, checkpoint=file)
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(PlacementError, match="no file to resume"):
        algorithm("random").search(random_problem(1), 50, 0, checkpoint=file)


@pytest.mark.parametrize(
    "kind",
    [
        Genetic(population=12, crossover="uniform", parents="tournament", tournament_size=3, elite=3),
        Genetic(population=13, crossover=3, ranking="exponential", evolve_rates=True, zone_rate=0.3, elite=2),
        Genetic(population=10, zone_rate=0.5, zone_rule="common", trivial_start=False),
        MapElites(batch=4, initial=10, copy_rate=0.3, replace_rate=0.2, zone_rate=0.3, selection="tournament"),
        Best(chains=1, rounds=1),
    ],
)
def test_options_lead_to_placements_on_devices_that_are_allowed(kind: Search) -> None:
    found = kind.search(random_problem(3, genes=15, devices=4), 600, 2, allowed=[1, 3])
    assert set(found.placement) <= {1, 3}
    assert found.score_ms < 60


def test_a_generation_has_the_size_of_the_population_and_the_last_best_is_the_result() -> None:
    found = Genetic(population=20, generations=5, trivial_start=False).search(random_problem(3, genes=15), 10_000)
    assert found.proposals == 3 + 20 * (5 + 1)
    assert len(found.notes.generations) == 6
    assert min(one.best_ms for one in found.notes.generations) >= found.score_ms


def test_an_archive_holds_the_best_of_each_cell() -> None:
    problem = random_problem(3, genes=9)
    found = MapElites(sizes=(-1, -1, -1), steps=800).search(problem, 10_000)
    assert len({elite.cell for elite in found.notes.archive}) == len(found.notes.archive) > 10
    scores = problem.evaluate(np.array([elite.placement for elite in found.notes.archive]))[0]
    assert [elite.score_ms for elite in found.notes.archive] == pytest.approx(scores.tolist())
    for elite in found.notes.archive:
        jumps = sum(elite.placement[one] != elite.placement[two] for one, two in problem.edges.tolist())
        assert elite.cell[2] == jumps


def test_an_archive_may_have_descriptors_of_its_own_and_irregular_cells() -> None:
    kind = MapElites(sizes=(1, 1), steps=60, cells=4, descriptor=lambda row, _: (row.mean() / 2, row.std()))
    cells = {elite.cell for elite in kind.search(random_problem(3, genes=9), 120).notes.archive}
    assert 2 < len(cells) <= 4


def test_annealing_reports_the_last_state_beside_the_best() -> None:
    found = SimulatedAnnealing(temperature_ms=1e6, decay=1.0).search(random_problem(3, genes=12), 500)
    assert found.notes.last is not None
    assert found.notes.last[1] > found.score_ms


@pytest.mark.parametrize(
    "kind", [Genetic(generations=3), MapElites(steps=50), DualAnnealing(steps=60), RandomHillClimbing(steps=50)]
)
def test_a_search_without_single_devices_proposes_its_own_placements_alone(kind: Search) -> None:
    problem = random_problem(3, genes=12)
    found = kind.search(problem, 1000, singles=False)
    assert found.single_ms is None
    assert found.notes.last is not None
    assert found.notes.last[1] >= found.score_ms == problem.evaluate(np.array([found.placement]))[0][0]
    if not isinstance(kind, RandomHillClimbing):  # which begins on a device of its own
        assert set(kind.search(problem, 1000, allowed=[1], singles=False).placement) == {1}


def test_an_unknown_algorithm_and_a_device_that_is_not_there_are_named() -> None:
    with pytest.raises(PlacementError, match="annealing"):
        algorithm("anealing")
    with pytest.raises(PlacementError, match="0 to 2"):
        algorithm("random").search(random_problem(1), 50, allowed=[3])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("particle-swarm", {"swarm": "0"}),
        ("particle-swarm", {"own": "nan"}),
        ("dual-annealing", {"steps": "0"}),
        ("map-elites", {"batch": "-1"}),
        ("map-elites", {"cells": "-1"}),
        ("genetic", {"crossover": "-1"}),
        ("best", {"chains": "0"}),
        ("best", {"growth": "1"}),
        ("best", {"cold": "0"}),
        ("best", {"cold": "-1"}),
        ("best", {"hot": "nan"}),
        ("best", {"rounds": "0"}),
        ("best", {"mean_run": "0"}),
        ("best", {"descents": "1"}),
        ("best", {"soft_penalty": "-1"}),
        ("best", {"weights": "-1"}),
    ],
)
def test_options_that_cannot_be_are_errors(kind: str, options: dict[str, str]) -> None:
    with pytest.raises(PlacementError):
        configured(type(algorithm(kind)), options)


@pytest.mark.parametrize("text", [".3", "0.3", "+.3", "3e-1", "30.e-2"])
def test_a_number_may_be_written_as_python_reads_it(text: str) -> None:
    assert algorithm("genetic", {"sharing_rate": text}) == Genetic(sharing_rate=0.3)


@pytest.mark.parametrize(
    ("kind", "rate"),
    [(kind, each.name) for kind in ALGORITHMS.values() for each in fields(kind) if each.name.endswith("_rate")],
)
def test_every_rate_is_0_to_1(kind: type[Search], rate: str) -> None:
    for value in ("0", "1"):
        assert getattr(configured(kind, {rate: value}), rate) == float(value)
    for value in ("-0.1", "1.5", "7"):
        with pytest.raises(PlacementError, match=f"option {rate} .* cannot be {value}: a rate is 0 to 1"):
            configured(kind, {rate: value})


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingExtra, match="needs OR-Tools: pip install"):
        algorithm("cp").search(random_problem(0, genes=5), 100)
