"""The longest common subsequence, against a plain dynamic program."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensortide.timing.traced import align

words = st.lists(st.sampled_from("abcd"), max_size=14)


def longest(one: list[str], other: list[str]) -> int:
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(words, words)
def test_as_many_as_can_be_are_matched_in_order_with_their_equals(one: list[str], other: list[str]) -> None:
    found = align(one, other)
    pairs = [(item, place) for item, place in enumerate(found) if place is not None]
    assert all(one[item] == other[place] for item, place in pairs)
    assert [place for _, place in pairs] == sorted({place for _, place in pairs})
    assert len(pairs) == longest(one, other)


@given(words, st.sets(st.integers(0, 13)))
def test_what_is_left_of_a_sequence_is_found_in_it(one: list[str], dropped: set[int]) -> None:
    rest = [word for i, word in enumerate(one) if i not in dropped]
    assert None not in align(rest, one)


def test_of_repetitions_the_first_is_taken() -> None:
    assert align("abc", "abcabcabc") == [0, 1, 2]


def test_long_sequences_of_one_item_are_matched() -> None:
    assert align("a" * 3000, "b" + "a" * 3000) == list(range(1, 3001))
