"""Axes and places of the panels of a figure."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.reports.blocks import Document, Section, UnitName
from tensortide.reports.pictures import Axis, Curve, Points, Scatter, Series, SpanLane, Spans
from tensortide.reports.render.figure import draw
from tensortide.reports.render.ticks import log_ticks, round_ticks, spaced, tick_text
from tests.marks import some_slow

UNITS: tuple[UnitName, ...] = ("bytes", "bytes_per_s", "ns", "s", "count", "number", "amount")


@given(
    unit=st.sampled_from(UNITS),
    low=st.floats(1, 1e12),
    span=st.floats(1.01, 1e9),
    most=st.integers(2, 14),
)
def test_ticks_of_a_logarithmic_axis_are_few_distinct_and_within_it(
    unit: UnitName, low: float, span: float, most: int
) -> None:
    found = log_ticks(low, low * span, most, unit)
    assert all(low <= tick <= low * span for tick in found)
    assert found == sorted(set(found))
    assert len({tick_text(tick, unit) for tick in found}) == len(found)
    assert len(found) <= most or span < 1e3


@pytest.mark.parametrize(
    ("low", "high", "unit", "texts"),
    [
        (90e6, 9e10, "bytes", ["256 MiB", "1 GiB", "4 GiB", "16 GiB", "64 GiB"]),
        (50, 2400, "s", ["100 s", "300 s", "10 min", "30 min"]),
        (300, 5e6, "s", ["10 min", "100 min", "10 h", "10 days"]),
        (1e7, 8e7, "ns", ["10 ms", "15 ms", "20 ms", "30 ms", "50 ms", "70 ms"]),
        (1e8, 2e11, "bytes_per_s", ["100 MB/s", "1 GB/s", "10 GB/s", "100 GB/s"]),
    ],
)
def test_ticks_are_round_in_the_unit_that_they_show(low: float, high: float, unit: UnitName, texts: list[str]) -> None:
    assert [tick_text(tick, unit) for tick in log_ticks(low, high, 6, unit)] == texts


@pytest.mark.parametrize(
    ("high", "unit", "texts"),
    [
        (1.24 * 2**30, "bytes", ["0", "256 MiB", "512 MiB", "768 MiB", "1 GiB"]),
        (7.5 * 2**30, "bytes", ["0", "2 GiB", "4 GiB", "6 GiB"]),
        (79 * 2**30, "bytes", ["0", "20 GiB", "40 GiB", "60 GiB"]),
        (4000, "s", ["0", "20 min", "40 min", "60 min"]),
        (350, "s", ["0", "100 s", "200 s", "300 s"]),
    ],
)
def test_ticks_of_an_even_axis_are_round_in_the_unit_that_they_show(
    high: float, unit: UnitName, texts: list[str]
) -> None:
    pytest.importorskip("matplotlib")
    found = round_ticks(0, high, 5, unit).tick_values(0, high)
    assert [tick_text(tick, unit) for tick in found if 0 <= tick <= high] == texts


def test_labels_that_would_meet_are_left_out() -> None:
    devices = [2**n for n in range(12)]
    assert spaced(devices, math.log2, "count") == devices
    some = spaced(devices, lambda value: 0.2 * math.log2(value), "count")
    assert some[0] == 1
    assert len(some) < len(devices)


def pictures() -> list[Spans | Curve | Scatter]:
    lanes = Spans(key="lanes", x_unit="ns", clock="run", lanes=(SpanLane("gpu0", (0, 5), (5, 9)),))
    memory = Curve(key="memory", x=(0, 5, 20), x_unit="ns", clock="run", stack=(Series("a", "a", (1, 2)),))
    return [lanes, memory, *(Scatter(key=k, x=Axis("x"), y=Axis("y"), points=(Points("p", (1,), (2,)),)) for k in "ab")]


def shown(*blocks: Spans | Curve | Scatter) -> list[tuple[float, float, float, float]]:
    """Left, bottom, right and top of each panel, in inches."""
    figure = draw(Document(title="t", sections=(Section("s", "s", blocks=blocks),)))
    figure.canvas.draw()
    width, height = figure.get_size_inches()
    places = [axis.get_position() for axis in figure.axes]
    return [(p.x0 * width, p.y0 * height, p.x1 * width, p.y1 * height) for p in places]


def test_panels_of_one_clock_have_one_axis_whatever_else_is_drawn() -> None:
    lanes, memory, first, second = pictures()
    places = shown(lanes, memory, first, second)
    assert places[0][0] == pytest.approx(places[1][0])
    assert places[0][2] == pytest.approx(places[1][2])
    assert places[0][1] > places[1][3]
    assert places[2][1] == pytest.approx(places[3][1])  # the others are side by side
    assert places[2][2] < places[3][0]


def test_a_panel_that_is_left_over_fills_its_row() -> None:
    _, _, first, second = pictures()
    lanes = Spans(key="pipeline", x_unit="ns", lanes=(SpanLane("rank 0", (0,), (5,)),))
    places = shown(first, second, lanes)
    assert places[2][2] - places[2][0] > 1.5 * (places[0][2] - places[0][0])


@pytest.mark.parametrize(("count", "each"), some_slow([(4, 1), (24, 1), (25, 2), (100, 5)], [(24, 1), (100, 5)]))
def test_of_many_lanes_some_are_named_each_at_its_own(count: int, each: int) -> None:
    lanes = tuple(SpanLane(f"stage {n + 1} of {count}", (0,), (5,)) for n in range(count))
    block = Spans(key="timeline", x_unit="ns", lanes=lanes)
    figure = draw(Document(title="t", sections=(Section("s", "s", blocks=(block,)),)))
    figure.canvas.draw()
    (axis,) = figure.axes
    written = {round(label.get_position()[1]): label.get_text() for label in axis.get_yticklabels()}
    assert written == {n: lanes[n].label for n in range(0, count, each)}
    boxes = sorted((label.get_window_extent() for label in axis.get_yticklabels()), key=lambda box: float(box.y0))
    assert all(below.y1 <= above.y0 + 0.5 for below, above in itertools.pairwise(boxes))
