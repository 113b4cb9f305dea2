"""The frontier shown: no known plan is below the bounds, and none is left out of the curve."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from tensortide import plan
from tensortide.plans.planned import Frontier
from tensortide.plans.under_budget.known import Rival
from tensortide.reports.pictures import Scatter
from tensortide.reports.render.figure import render_figure
from tensortide.reports.sections.frontier import document
from tests.reports.graphs import tower

GRAPH = tower(6)
TIMES = tuple(1000 + 37 * op for op in range(len(GRAPH)))


RIVALS = (
    Rival("dtr-eq", "online policy", 1500, 450),
    Rival("checkpoint layers.*", "modules", 1800, 600),
    Rival("as recorded", "as recorded", 1000, 1000),
    Rival("lru", "online policy", 9000, 400),
)


@cache
def found() -> Frontier:
    """Plans of a step of 1000 ns and 1000 bytes; an online policy has a faster plan between two of its budgets."""
    whole = plan(GRAPH, 1 << 40, durations_ns=TIMES)
    figures = ((400, 400, 2000, 1600), (600, 590, 1200, 1150), (800, 790, 1100, 1100), (1000, 1000, 1000, 1000))
    points = [
        msgspec.structs.replace(
            whole,
            budget_bytes=budget,
            peak_bytes=peak,
            step_ns=time,
            bound_ns=bound,
            base_ns=1000,
            recorded_peak_bytes=1000,
            rivals=RIVALS,
        )
        for budget, peak, time, bound in figures
    ]
    return Frontier(points=tuple(points))


def picture(budget_bytes: int | None = None) -> Scatter:
    block = document(found(), GRAPH, budget_bytes=budget_bytes)["frontier"]["frontier"]
    assert isinstance(block, Scatter)
    return block


def test_the_curve_is_the_fastest_plan_known_for_each_peak() -> None:
    known, _, *others = picture().points
    places = [(x, y) for one in others for x, y in zip(one.x, one.y, strict=True) if y is not None]
    assert (450, 0.5) in places
    assert (400, 8.0) not in places  # far above, it would leave no room for the rest
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
