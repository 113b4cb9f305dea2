"""Wirings of a node: every row of their table, and the properties of links between devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.timing.catalogue import catalogue
from tensortide.timing.wiring import WIRINGS

JOINED = {"mesh": (2, 4, 8), "bridge": (2, 4), "cube4": (8,), "cube6": (8,)}
"""Wirings with links between two devices, and how many they may join."""
CASES = [(name, count) for name, counts in JOINED.items() for count in counts]


def test_every_wiring_is_in_the_catalogue_or_is_tried_here() -> None:
    assert {row.wiring for row in catalogue()} == set(WIRINGS)
    assert {name for name, wiring in WIRINGS.items() if wiring.part is not None} == set(JOINED)
    for wiring in WIRINGS.values():
        assert wiring.about
        assert ("{}" in wiring.about) == (wiring.part is not None)


@pytest.mark.parametrize(("name", "count"), CASES)
def test_links_are_of_two_devices_and_use_the_whole_rate_of_each(name: str, count: int) -> None:
    part = WIRINGS[name].part
    assert part is not None
    for a in range(count):
        assert sum(part(a, b, count) for b in range(count) if b != a) == pytest.approx(1)
        assert all(part(a, b, count) == part(b, a, count) for b in range(count) if b != a)
        assert part(a, a + count, count) == 0  # of the next such node


@given(st.sampled_from(CASES), st.sets(st.integers(0, 7), min_size=2))
def test_a_group_has_no_more_than_a_larger_one_of_the_same_node(case: tuple[str, int], members: set[int]) -> None:
    name, count = case
    some = sorted(each for each in members if each < count)
    if len(some) > 1:
        share = WIRINGS[name].share(some, count)
        assert 0 <= share <= WIRINGS[name].share(range(count), count) == pytest.approx(1)
        assert share == WIRINGS[name].share(some[::-1], count)


def test_a_group_that_its_links_leave_apart_has_none() -> None:
    assert WIRINGS["bridge"].share([0, 2], 2) == 0
    assert WIRINGS["bridge"].share(range(4), 2) == 0
    assert WIRINGS["cube6"].share([0, 5], 8) == 0
    assert WIRINGS["cube6"].share([0, 4, 5], 8) == pytest.approx(1 / 6)
