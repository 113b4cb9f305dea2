"""Factorizations and solves against the loops that they are: leading terms, so within a few per cent."""

from __future__ import annotations

import pytest
import torch

from tests.cost.probe import cost_of


def eliminate(m: int, n: int) -> int:
    return sum((m - k - 1) * (n - k - 1) for k in range(min(m, n)))


@pytest.mark.parametrize(("m", "n"), [(60, 60), (90, 40), (40, 90)])
def test_elimination_against_its_loop(m: int, n: int) -> None:
    cost = cost_of(torch.linalg.lu_factor_ex, torch.randn(2, m, n))
    assert cost.macs == pytest.approx(2 * eliminate(m, n), rel=0.05)
    symmetric = torch.randn(m, m)
    ldl = cost_of(torch.linalg.ldl_factor_ex, symmetric + symmetric.T)
    assert ldl.macs == pytest.approx(eliminate(m, m) / 2, rel=0.05)


def reflect(m: int, n: int) -> int:
    """Every reflection meets the columns behind it twice: for the product with it, and for the update."""
    return sum(2 * (m - k) * (n - k - 1) for k in range(min(m, n)))


def test_reflections_against_their_loop() -> None:
    x = torch.randn(90, 40)
    factors = cost_of(torch.geqrf, x).macs
    assert factors == pytest.approx(reflect(90, 40), rel=0.05)
    assert cost_of(lambda: torch.linalg.qr(x, "r")).macs == factors
    assert cost_of(lambda: torch.linalg.qr(x)).macs == 2 * factors
    packed, tau = torch.geqrf(x)
    assert cost_of(torch.linalg.householder_product, packed, tau).macs == factors
    assert cost_of(lambda: torch.ormqr(packed, tau, torch.randn(90, 7))).macs == 2 * 90 * 7 * 40


def test_solves_substitute_for_every_right_hand_side() -> None:
    n, r = 50, 4
    a, b = torch.eye(n) + torch.randn(n, n) / 100, torch.randn(n, r)
    once = sum(range(n))
    assert cost_of(lambda: torch.linalg.solve_triangular(a, b, upper=True)).macs == pytest.approx(once * r, rel=0.05)
    across = cost_of(lambda: torch.linalg.solve_triangular(a, b.T, upper=True, left=False))
    assert across.macs == pytest.approx(once * r, rel=0.05)
    solved = eliminate(n, n) + 2 * once * r
    assert cost_of(torch.linalg.solve, a, b).macs == pytest.approx(solved, rel=0.05)
    assert cost_of(torch.linalg.solve, a, b[:, 0]).macs == pytest.approx(eliminate(n, n) + 2 * once, rel=0.05)
    assert cost_of(torch.cholesky_solve, b, torch.eye(n)).macs == pytest.approx(2 * once * r, rel=0.05)
