"""The frontier shown: no known plan is below the bounds, and none is left out of the curve."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tensortide import frontier
from tensortide.plans.under_budget.planned import Frontier
from tensortide.reports.pictures import Scatter
from tensortide.reports.render.figure import render_figure
from tensortide.reports.sections.frontier import document
from tests.reports.graphs import tower

GRAPH = tower(6)
TIMES = tuple(1000 + 37 * op for op in range(len(GRAPH)))


@cache
def found() -> Frontier:
    return frontier(GRAPH, points=5, durations_ns=TIMES, effort=0.02)


def picture(budget_bytes: int | None = None) -> Scatter:
    block = document(found(), GRAPH, budget_bytes=budget_bytes)["frontier"]["frontier"]
    assert isinstance(block, Scatter)
    return block


def test_the_curve_is_the_fastest_plan_known_for_each_peak() -> None:
    known, _, *others = picture().points
    places = [(x, y) for one in others for x, y in zip(one.x, one.y, strict=True) if y is not None]
    assert places
    for x, y in zip(known.x, known.y, strict=True):
        assert y == min(extra for nbytes, extra in places if nbytes <= x)
    assert list(known.y) == sorted(known.y, reverse=True)  # type: ignore[type-var]


def test_the_gap_is_between_the_bound_and_the_curve() -> None:
    known = picture().points[0]
    assert all(low <= high == y for low, high, y in zip(known.low, known.high, known.y, strict=True))  # type: ignore[operator]
    for x, low in zip(known.x, known.low, strict=True):
        above = [point for point in found().points if point.budget_bytes > x] or [found().points[-1]]
        assert low == above[0].bound_ns / above[0].base_ns - 1


def test_the_knee_and_the_budget_of_the_user_are_marked() -> None:
    planned = picture(12345).points[2]
    knee = found().points[found().knee]
    (name,) = (name for name in planned.names if name)
    assert planned.x[planned.names.index(name)] == knee.peak_bytes
    assert [limit.value for limit in picture(12345).down] == [12345]
    assert picture().down == ()
    assert picture().x.whole == found().points[-1].recorded_peak_bytes


def test_it_is_drawn(tmp_path: Path) -> None:
    assert render_figure(document(found(), GRAPH), tmp_path / "frontier.png").stat().st_size > 10_000
