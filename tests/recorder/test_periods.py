"""Training steps in sequences of optimizer steps: any repeating sequence is found, wherever it begins."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.recorder import periods
from tensortide.recorder.periods import PATIENCE, Periods


def ends(sequence: str, made: str = "") -> list[int]:
    """Steps taken when each training step ends."""
    found, number = Periods(), {name: i for i, name in enumerate(sorted({*sequence, *made}))}
    for name in made:
        found.made(number[name])
    return [i for i, name in enumerate(sequence, 1) if found.stepped(number[name])]


@pytest.mark.parametrize(
    ("sequence", "made", "expected"),
    [
        ("AAAA", "A", [1, 2, 3, 4]),
        ("DGDGDG", "DG", [2, 4, 6]),
        ("DDDGDDDG", "DG", [4, 8]),
        ("GDDDGDDD", "GD", [2, 6]),
        ("ABACABAC", "ABC", [4, 8]),
        ("DGDGDG", "", [1, 3, 5]),
        ("A" * (PATIENCE + 3), "AB", [PATIENCE + 1, PATIENCE + 2, PATIENCE + 3]),
        ("AB" + "A" * (PATIENCE + 2), "AB", [2, PATIENCE + 3, PATIENCE + 4]),
    ],
)
def test_a_training_step_ends(sequence: str, made: str, expected: list[int]) -> None:
    assert ends(sequence, made) == expected


@given(st.text("ABC", min_size=1, max_size=6))
def test_every_step_holds_every_optimizer(body: str) -> None:
    found = ends(body * 6, "".join(sorted(set(body))))
    took = [(body * 6)[start:end] for start, end in zip([0, *found], found, strict=False)]
    assert all(set(step) == set(body) for step in took)
    assert len({step[-1] for step in took}) == 1


@given(st.permutations("ABCD"))
def test_a_step_of_one_step_of_each_is_the_body_of_the_loop(body: list[str]) -> None:
    assert ends("".join(body) * 3, "ABCD") == [4, 8, 12]


def test_optimizers_made_anew_in_every_step_take_the_place_of_those_before() -> None:
    """An inner loop, whose first optimizer may live on in a variable."""
    found, outer = Periods(), 0
    found.made(outer)
    ended = []
    for inner in (1, 2, 3):
        found.made(inner)
        ended.append([found.stepped(optimizer) for optimizer in (inner, inner, outer)])
    assert ended == [[False, False, True]] * 3


def test_a_dropped_optimizer_is_not_waited_for() -> None:
    found = Periods()
    found.made(1)
    found.made(2)
    found.dropped(2)
    assert [found.stepped(1), found.stepped(1)] == [True, True]


def test_a_skipped_step_ends_a_period_that_does_not_count() -> None:
    found = Periods()
    found.made(1)
    assert [(found.stepped(1, skipped=skipped), found.count) for skipped in (True, False, True, False)] == [
        (True, 0),
        (True, 1),
        (True, 1),
        (True, 2),
    ]
    assert found.skipped == 2


def test_examples() -> None:
    assert doctest.testmod(periods).failed == 0
