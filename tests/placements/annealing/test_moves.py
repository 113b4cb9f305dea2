"""Moves: what each kind changes, pins, and the same without compilation."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.placements.annealing import moves
from tensortide.placements.annealing.moves import DRAWS, KINDS, Neighbourhood, Weights, move, neighbours, orders
from tensortide.placements.arrays import Placements


def neighbourhood(weights: Weights, genes: int, devices: int, edges: list[tuple[int, int]]) -> Neighbourhood:
    offsets, near = neighbours(genes, np.array(edges))
    free, none = np.arange(genes), np.zeros((0, 2), np.int64)
    return Neighbourhood(
        weights.cumulative(), np.arange(devices), free, none, offsets, near, 4.0, *orders(genes, np.array(edges))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_move_changes_what_it_says(kind: str) -> None:
    weights = Weights(**{each: float(each == kind) for each in KINDS})
    near = neighbourhood(weights, 20, 4, [(one, one + 1) for one in range(19)])
    rows = np.repeat(np.repeat(np.arange(4), 5)[None], 200, axis=0)
    new, draws = rows.copy(), np.random.default_rng(1).random(200 * DRAWS)
    for number, row in enumerate(new):
        move(row, draws, number * DRAWS, near)
    changed = new != rows
    assert changed.any(axis=1).all()
    assert set(new.ravel().tolist()) <= set(range(4))
    for row, places in zip(new, map(np.flatnonzero, changed), strict=True):
        assert_move(kind, row, places)


def assert_move(kind: str, row: Placements, places: Placements) -> None:
    together = len(places) == 0 or places[-1] - places[0] == len(places) - 1
    if kind in ("gene", "neighbour"):
        assert len(places) <= 1
    if kind == "neighbour" and len(places):
        assert row[places[0]] in (row[max(0, places[0] - 1)], row[min(19, places[0] + 1)])
    if kind == "boundary":
        assert together
        assert len(np.unique(row)) >= 3
    if kind == "group":
        assert 1 <= len(places) <= 3
        assert together
    if kind in ("run", "group"):
        assert len(set(row[places].tolist())) <= 1
    if kind == "segment":
        assert len(places) == 5
        assert places[0] % 5 == 0


def test_moves_keep_pins_and_are_the_same_without_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    rows, draws = rng.integers(0, 3, (300, 12)), rng.random(300 * DRAWS)
    rows[:, 4] = 2
    near = neighbourhood(Weights(), 12, 3, [(0, 5), (3, 11)])
    near = near._replace(free=np.delete(near.free, 4), pins=np.array([[4, 2]]))
    fast, slow = rows.copy(), rows.copy()
    for number, row in enumerate(fast):
        move(row, draws, number * DRAWS, near)
    for name in ("_move", "_follow", "_other", "_shift", "_spread", "_swap"):
        monkeypatch.setattr(moves, name, getattr(getattr(moves, name), "py_func", getattr(moves, name)))
    for number, row in enumerate(slow):
        getattr(move, "py_func", move)(row, draws, number * DRAWS, near)
    assert np.array_equal(fast, slow)
    assert (fast[:, 4] == 2).all()


def test_orders_are_topological_and_a_cut_through_branches_is_a_boundary_in_one() -> None:
    edges = [(0, 1), (1, 2), (2, 5), (0, 3), (3, 4), (4, 5), (5, 6)]  # branches 1-2 and 3-4 between 0 and 5
    found, places = orders(7, np.array(edges))
    assert found.tolist() == [[0, 1, 2, 3, 4, 5, 6], [0, 3, 4, 1, 2, 5, 6], [0, 1, 3, 2, 4, 5, 6]]
    for order, place in zip(found, places, strict=True):
        assert np.array_equal(place[order], np.arange(7))
        assert all(place[producer] < place[consumer] for producer, consumer in edges)


def test_a_chain_and_edges_of_groups_that_lead_back_have_one_order() -> None:
    for edges in ([(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 0), (1, 2), (2, 3), (3, 1)]):
        assert orders(4, np.array(edges))[0].tolist() == [[0, 1, 2, 3]]
