"""Descents by single genes: their ends are local optima, and pins, proposals and what was seen count."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.errors import PlacementError
from tensortide.placements.annealing.moves import KINDS, Weights
from tensortide.placements.search.best import descend
from tensortide.placements.search.session import Budget, Session
from tests.placements.search.doubles import random_problem


@pytest.mark.parametrize("seed", range(4))
def test_no_change_of_one_free_gene_improves_the_end_of_a_descent(seed: int) -> None:
    problem = random_problem(seed, genes=9, room=1.2)
    problem.pins = {4: 1}
    session = Session(problem, Budget(10_000), seed)
    start = session.pinned(session.random(1))[0]
    session.measure(start[None])
    end = descend(session, start, 0.0, 10_000, np.random.default_rng(seed))
    score = float(problem.evaluate(end[None])[0][0])
    assert end[4] == 1
    assert score == session.best_ms <= float(problem.evaluate(start[None])[0][0])
    for gene in set(range(9)) - {4}:
        for device in range(problem.devices):
            other = end.copy()
            other[gene] = device
            assert float(problem.evaluate(other[None])[0][0]) >= score
    before = session.proposals
    assert np.array_equal(descend(session, end, 0.0, 10_000, np.random.default_rng(9)), end)
    assert session.proposals == before  # all neighbours were seen


def test_a_descent_ends_before_the_proposals_that_it_may_take() -> None:
    problem = random_problem(3, genes=20)
    session = Session(problem, Budget(10_000), 0)
    start = session.random(1)[0]
    session.measure(start[None])
    descend(session, start, 0.0, 40, np.random.default_rng(0))
    assert 20 < session.proposals <= 40


def test_weights_of_moves_that_leave_none_are_refused() -> None:
    for weights in ({"gene": -1.0}, {"run": float("nan")}, dict.fromkeys(KINDS, 0.0)):
        with pytest.raises(PlacementError, match="0 or more"):
            Weights(**weights)
