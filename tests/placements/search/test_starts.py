"""Several starts of a search: the same result in threads and on Ray, also where a worker dies."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tensortide.executors import LOCAL, Where
from tensortide.placements import NetProblem, Settings, read_device_graph, read_net
from tensortide.placements.arrays import Floats, Placements
from tensortide.placements.graphs import PlaceOptions, ready
from tensortide.placements.problem import Problem
from tensortide.placements.search import Budget, SearchResult, algorithm
from tensortide.placements.search.best import Best
from tensortide.placements.search.starts import search_starts
from tests.placements.graphs.steps import captured, cluster
from tests.placements.search.doubles import InOrder, random_problem

THREADS = Where(workers=2, kind="threads")
RAY = Where(workers=2, cluster=LOCAL)


def timeless(found: SearchResult) -> SearchResult:
    """The result without the time that it took."""
    return replace(found, cpu_s=0.0)


def test_the_best_of_all_starts_is_the_result_and_counts_are_those_of_all() -> None:
    problem = random_problem(1, genes=8)
    alone = [Best(chains=2, planned=300).search(problem, 60, seed) for seed in (5, 6)]
    found = search_starts(Best(chains=2, planned=300), problem, Budget(120), 5, 2, THREADS)
    assert found.score_ms == min(one.score_ms for one in alone)
    assert found.placement in [one.placement for one in alone]
    assert (found.proposals, found.evaluations) == (120, sum(one.evaluations for one in alone))


def test_a_request_to_stop_ends_every_start_and_keeps_the_best() -> None:
    found = search_starts(Best(), random_problem(1, genes=20), Budget(10**7), 0, 3, THREADS, lambda: True)
    assert (found.ended, found.proposals) == ("interrupted", 0)


@dataclass
class DiesOnce(InOrder):
    """A problem whose first evaluation kills the process that makes it, unless that is ``parent``."""

    folder: str = ""
    parent: int = 0

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        if os.getpid() != self.parent:
            try:
                (Path(self.folder) / "killed").touch(exist_ok=False)
            except FileExistsError:
                return super().evaluate(placements)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(placements)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_whose_worker_is_killed_finds_what_threads_find(tmp_path: Path) -> None:
    """Of the search that has most to restore."""
    base = random_problem(2, genes=15)
    problem = DiesOnce(
        base.edges, base.work, base.transfers, base.memory, base.capacity, folder=str(tmp_path), parent=os.getpid()
    )
    search = algorithm("map-elites")
    here = search_starts(search, problem, Budget(600), 0, 4, THREADS)
    assert not (tmp_path / "killed").exists()
    there = search_starts(search, problem, Budget(600), 0, 4, RAY)
    assert (tmp_path / "killed").exists()
    assert timeless(here) == timeless(there)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_net_is_placed_on_a_cluster_as_in_threads(reference: Path) -> None:
    folder = reference / "placement" / "inputs" / "exprimo"
    net, machine = (
        read_net(folder / "nets" / "alex_v2.json"),
        read_device_graph(folder / "device_graphs" / "malvik.json"),
    )
    problem = NetProblem(net, machine, Settings(batch_size=128))
    here, there = (search_starts(algorithm("random"), problem, Budget(400), 0, 2, where) for where in (THREADS, RAY))
    assert timeless(here) == timeless(there)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_captured_step_is_placed_on_a_cluster_as_in_threads() -> None:
    options = PlaceOptions(schedule="1f1b", micro_batches=2)
    problem: Problem = ready(captured("gpt2"), cluster(2), options).problem
    here, there = (search_starts(Best(), problem, Budget(120), 0, 2, where) for where in (THREADS, RAY))
    assert timeless(here) == timeless(there)
