"""List scheduling, contiguous splits, repairs and groups."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tensortide.errors import PlacementError
from tensortide.placements.search.best import Best
from tensortide.placements.search.contiguous import splits
from tensortide.placements.search.groups import Grouped, grouped
from tensortide.placements.search.list_scheduling import earliest_first, favourite_children, topological
from tensortide.placements.search.seeds import repaired, seeds
from tensortide.search_limit import SearchLimit
from tests.placements.search.doubles import InOrder, random_problem

ALL = np.arange(3)


def chain(work: list[float], devices: int, transfer: float, capacity: float = 100.0) -> InOrder:
    genes = len(work)
    return InOrder(
        edges=np.array([(one, one + 1) for one in range(genes - 1)], np.int64).reshape(-1, 2),
        work=np.repeat(np.array(work)[:, None], devices, axis=1),
        transfers=np.full((genes - 1, devices, devices), transfer) * (1 - np.eye(devices)),
        memory=np.ones(genes),
        capacity=np.full(devices, capacity),
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_stage_of_a_split_is_the_least_that_brute_force_finds(seed: int) -> None:
    work = np.random.default_rng(seed).uniform(1, 5, 9).tolist()
    problem = chain(work, 3, transfer=0.5)

    def longest(ends: tuple[int, ...]) -> float:
        stages = itertools.pairwise((0, *ends, len(work)))
        return max(float(sum(work[start:end])) for start, end in stages)

    best = min(longest(ends) for count in range(3) for ends in itertools.combinations(range(1, 9), count))
    plain = [row for row in splits(problem, ALL) if np.count_nonzero(np.diff(row)) < len(set(row.tolist()))]
    assert min(float(np.bincount(row, weights=work).max()) for row in plain) == pytest.approx(best)


def test_looped_splits_balance_devices_better_than_one_stage_each() -> None:
    work = np.random.default_rng(0).uniform(1, 5, 9).tolist()
    rows = [*splits(chain(work, 3, transfer=0.5), ALL)]
    loads = [(float(np.bincount(row, weights=work).max()), 1 + int(np.count_nonzero(np.diff(row)))) for row in rows]
    assert min(load for load, stages in loads if stages > 3) < min(load for load, stages in loads if stages == 3)


def test_without_loops_every_device_has_one_stage() -> None:
    rows = [*splits(chain([1.0, 2.0, 3.0] * 3, 3, transfer=0.5), ALL, 1)]
    assert rows
    assert all(np.count_nonzero(np.diff(row)) + 1 == len(set(row.tolist())) for row in rows)


def test_a_split_keeps_within_memory_and_uses_each_device_for_equally_many_stages() -> None:
    for row in splits(chain([1.0] * 12, 3, 0.1, capacity=5), ALL):
        assert np.bincount(row).max() <= 5
        stages = row[np.flatnonzero(np.diff(row, prepend=-1))]
        assert len(set(np.bincount(stages).tolist())) == 1


def test_topological_filling_takes_an_even_share_and_the_largest_gene() -> None:
    assert topological(chain([1.0] * 6, 3, 1.0), ALL).tolist() == [0, 0, 0, 1, 1, 1]


def test_earliest_first_runs_two_branches_beside_each_other_unless_transfers_cost_more() -> None:
    edges = np.array([(0, 1), (0, 2), (1, 3), (2, 3)])
    apart = InOrder(edges, np.full((4, 2), 4.0), _between(4, 1.0), np.ones(4), np.full(2, 9.0))
    row = earliest_first(apart, np.arange(2))
    assert row[1] != row[2]
    together = InOrder(edges, np.full((4, 2), 4.0), _between(4, 50.0), np.ones(4), np.full(2, 9.0))
    assert len(set(earliest_first(together, np.arange(2)).tolist())) == 1


def _between(edges: int, ms: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.full((edges, 2, 2), ms) * (1 - np.eye(2))


def test_a_list_keeps_within_memory_where_there_is_room() -> None:
    problem = random_problem(3, genes=20, room=1.6)
    row = earliest_first(problem, ALL)
    assert (np.bincount(row, weights=problem.memory, minlength=3) <= problem.capacity).all()


def test_the_favourite_child_is_the_one_whose_transfer_costs_most() -> None:
    edges = np.array([(0, 1), (0, 2)])
    between = np.array([1.0, 9.0])[:, None, None] * (1 - np.eye(2))
    problem = InOrder(edges, np.ones((3, 2)), between, np.ones(3), np.full(2, 9.0))
    assert favourite_children(problem, np.arange(2), SearchLimit()).tolist() == [2, -1, -1]


def test_a_repair_fits_and_leaves_what_fits_alone() -> None:
    problem = chain([1.0] * 9, 3, 0.1, capacity=4)
    row = repaired(problem, np.zeros(9, np.int64), ALL)
    assert np.bincount(row, minlength=3).max() <= 4
    assert repaired(problem, row, ALL).tolist() == row.tolist()


def test_seeds_are_distinct_placements_on_the_devices_allowed() -> None:
    rows = seeds(random_problem(3, genes=20, devices=4, room=1.5), np.array([1, 2]))
    assert len({row.tobytes() for row in rows}) == len(rows) > 3
    assert set(rows.ravel().tolist()) == {1, 2}


@pytest.mark.parametrize(
    ("rule", "count"), [("none", 8), ("block", 4), ("prefix:/", 4), ("prefix:4", 1), ("prefix:5", 4), ("coarsen:3", 3)]
)
def test_groups_score_as_the_genes_that_they_hold(rule: str, count: int) -> None:
    problem = random_problem(3, genes=8)
    groups = grouped(problem, rule)
    assert len(groups.names) == count
    found = Best().search(groups, 300)
    row = np.array([found.placement])
    whole = groups.expanded(row) if isinstance(groups, Grouped) else row
    assert found.score_ms == problem.evaluate(whole)[0][0]
    assert groups.work.sum() == pytest.approx(problem.work.sum())
    assert groups.memory.sum() == pytest.approx(problem.memory.sum())


def test_groups_of_a_file_and_rules_that_are_none(tmp_path: Path) -> None:
    problem = random_problem(3, genes=4)
    one, two = tmp_path / "a.json", tmp_path / "b.json"
    one.write_text('{"part0/op0": "x", "part1/op3": "x"}')
    two.write_text('[["part0/op0", "part1/op3"]]')
    for path in (one, two):
        assert len(grouped(problem, f"file:{path}").names) == 3
    for rule in ("blocks", "prefix:", "coarsen:0", f"file:{tmp_path / 'c.json'}"):
        with pytest.raises(PlacementError):
            grouped(problem, rule)
