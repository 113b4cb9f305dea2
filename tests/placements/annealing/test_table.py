"""The table of placements: against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensortide.placements.annealing.table import Table, add, append, find, first_of, new_table, number_all, with_room

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), max_size=40)


def filled(rows: list[list[int]]) -> tuple[Table, dict[tuple[int, ...], int]]:
    table, expected = new_table(3, 1), dict[tuple[int, ...], int]()
    for row in rows:
        if tuple(row) not in expected:
            table = with_room(table, 1)
            expected[tuple(row)] = add(table, np.array(row), float(len(expected)), 0.0)
    return table, expected


@given(ROWS, ROWS)
def test_a_table_finds_what_a_dictionary_finds(rows: list[list[int]], others: list[list[int]]) -> None:
    table, expected = filled(rows)
    assert list(expected.values()) == list(range(len(expected))) == table.scores[: len(expected)].tolist()
    for row in rows + others:
        assert find(table, np.array(row)) == expected.get(tuple(row), -1)


@given(ROWS, ROWS, st.integers(0, 9))
def test_rows_are_numbered_until_too_many_are_new(rows: list[list[int]], others: list[list[int]], most: int) -> None:
    table, expected = filled(rows)
    table, numbers = with_room(table, len(others)), np.full(len(others), -1)
    count = number_all(table, np.array(others, np.int64).reshape(-1, 3), numbers, most)
    known = len(expected)
    for row, number in zip(others[:count], numbers.tolist(), strict=False):
        assert number == expected.setdefault(tuple(row), len(expected))
    assert len(expected) - known <= most
    if count < len(others):
        assert (len(expected) - known, tuple(others[count]) in expected) == (most, False)


@given(ROWS, ROWS)
def test_tables_are_joined_and_cut(rows: list[list[int]], others: list[list[int]]) -> None:
    table, expected = filled(rows)
    more, second = filled(others)
    table = with_room(table, len(second))
    append(table, more)
    assert int(table.size[0]) == len({**expected, **second})
    assert all(find(table, np.array(row)) >= 0 for row in second)
    again = first_of(table, len(expected))
    assert int(again.size[0]) == len(expected)
    assert all(find(again, np.array(row)) == number for row, number in expected.items())
