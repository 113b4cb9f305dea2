"""Paths that differ in a number are one text, which has all of them."""

from __future__ import annotations

import doctest

import pytest

from tensortide.measures.differences import paths
from tensortide.measures.differences.paths import folded


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        ([], []),
        (["(root)"], ["(root)"]),
        (["h.1", "h.0", "h.2"], ["h.[0-2]"]),
        (["h.0", "h.2"], ["h.0", "h.2"]),
        (["a.0.x", "a.1.x", "b.0.x"], ["a.[0-1].x", "b.0.x"]),
        (["a.0.0", "a.0.1", "a.1.0", "a.1.1"], ["a.[0-1].[0-1]"]),
        (["0", "1"], ["[0-1]"]),
    ],
)
def test_ranges(names: list[str], texts: list[str]) -> None:
    assert folded(names) == texts


def test_examples() -> None:
    assert doctest.testmod(paths).failed == 0
