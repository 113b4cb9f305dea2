"""The published problems: what the default search finds there, against published results and proofs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensortide.errors import NothingFits
from tensortide.placements import NetProblem
from tensortide.placements.search import algorithm
from tensortide.studies.placement.placed_net import NetSubject
from tests.placements.cases import PUBLISHED, cluster, net

SETTINGS = replace(PUBLISHED, memory_penalization_factor=1.0)


def problem(name: str, graph: str) -> NetProblem:
    return NetProblem(net(name), cluster(graph), SETTINGS)


@pytest.mark.parametrize(
    ("name", "graph", "seeds", "bar"),
    [
        ("alex_v2", "malvik", 1, 43.4074),
        ("alex_v2", "malvik-4gpu-reduced-alexnet", 2, 56.3),
        ("resnet50", "malvik", 1, 203.405),
        pytest.param("resnet50", "malvik-4gpu-reduced-resnet", 5, 850.0, marks=pytest.mark.slow),
    ],
)
def test_the_default_search_meets_the_bars_of_the_published_problems(
    name: str, graph: str, seeds: int, bar: float
) -> None:
    for seed in range(seeds):
        found = algorithm("best").search(problem(name, graph), 20_000, seed)
        assert found.score_ms <= bar
        assert found.over_bytes == 0


def test_a_single_gpu_is_proved_optimal_for_alexnet() -> None:
    found = algorithm("best").search(problem("alex_v2", "malvik"), 1000)
    assert (found.proved, set(found.placement)) == (True, {1})


def test_all_placements_of_mnist_have_no_better_one_than_the_search_finds() -> None:
    two = NetProblem(net("mnist"), cluster("malvik"), SETTINGS, where=(0, 1))
    exhaustive = algorithm("exhaustive").search(two, 2**9 + 2)
    assert exhaustive.proved
    for name in ("best", "cp", "genetic", "map-elites", "dual-annealing", "annealing"):
        assert algorithm(name).search(two, 2000).score_ms == pytest.approx(exhaustive.score_ms, rel=1e-12)


def test_the_placement_is_by_layer_whatever_the_groups_and_the_devices_allowed() -> None:
    subject = NetSubject(net("alex_v2"), cluster("malvik-4gpu-reduced-alexnet"), SETTINGS, (2, 4), "coarsen:6")
    best = algorithm("best")
    placed = subject.placed(best, best.search(subject.problem, 500, threads=2))
    assert set(placed.assignment.values()) <= {2, 4}
    assert placed.simulated.score == pytest.approx(placed.search.score_ms)
    assert len(placed.placement) == 15


def test_a_layer_that_no_device_holds_is_named() -> None:
    small = replace(SETTINGS, device_memory_utilization=0.01)
    subject = NetSubject(net("alex_v2"), cluster("malvik-4gpu-reduced-alexnet"), small, (1, 2, 3, 4))
    with pytest.raises(NothingFits, match=r"'fc6' .* needs [\d,]+ bytes for its weights"):
        algorithm("best").search(subject.problem, 100)
