"""Paths of modules in few words: no text names a module that was not given."""

from __future__ import annotations

import doctest
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.graph import module_paths
from tensortide.graph.module_paths import as_one, is_inside, pattern, ranged

PATHS = st.lists(
    st.lists(st.sampled_from(("0", "1", "2", "5", "10", "h", "mlp")), min_size=1, max_size=3).map(".".join)
)


def spelled(text: str) -> set[str]:
    """The paths that a text with ranges stands for."""
    return set(map(".".join, itertools.product(*map(names, text.split(".")))))


def names(part: str) -> list[str]:
    if not part.startswith("["):
        return [part]
    runs = [list(map(int, run.split("-"))) for run in part[1:-1].split(",")]
    return [str(number) for run in runs for number in range(run[0], run[-1] + 1)]


@given(PATHS)
def test_ranges_name_each_path_and_no_other(paths: list[str]) -> None:
    texts = ranged(paths)
    assert sorted(name for text in texts for name in spelled(text)) == sorted(set(paths))


@given(PATHS.filter(bool))
def test_one_text_for_all_names_exactly_them_unless_it_has_a_star(paths: list[str]) -> None:
    text = as_one(paths)
    assert "*" in text or spelled(text) == set(paths) or any(path.startswith(f"{text}.") for path in paths)


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        ([], []),
        (["(root)"], ["(root)"]),
        (["h.1", "h.0", "h.2"], ["h.[0-2]"]),
        (["h.0", "h.2"], ["h.[0,2]"]),
        (["h.0", "h.2", "h.4", "h.6"], ["h.0", "h.2", "h.4", "h.6"]),
        (["a.0.x", "a.1.x", "b.0.x"], ["a.[0-1].x", "b.0.x"]),
        (["a.0.0", "a.0.1", "a.1.0", "a.1.1"], ["a.[0-1].[0-1]"]),
        (["0", "1"], ["[0-1]"]),
    ],
)
def test_ranges(names: list[str], texts: list[str]) -> None:
    assert ranged(names) == texts


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["h.10.mlp", "h.2.mlp", "h.3.mlp"], "h.[2-3,10].mlp"),
        (["h.0", "h.2", "h.4", "h.6"], "h.*"),
        (["g.0.1.x", "g.1.0.x"], "g.*.*.x"),
        (["h.1.0"], "h.1.0"),
        (["", ""], ""),
    ],
)
def test_modules_of_one_row_have_one_name(paths: list[str], name: str) -> None:
    assert as_one(paths) == name


def test_numbers_that_are_whole_names_are_any_in_a_pattern() -> None:
    assert pattern("h.10.conv2.0") == "h.*.conv2.*"


def test_a_pattern_matches_modules_with_all_inside() -> None:
    paths = ["(root)", "(outside)", "blocks.0", "blocks.0.mlp", "blocks.1.mlp.up", "head", "blocksy"]
    matched = {
        wanted: {path for path in paths if is_inside(path, wanted)} for wanted in ("blocks.*", "blocks", "*.mlp")
    }
    assert matched["blocks.*"] == matched["blocks"] == {"blocks.0", "blocks.0.mlp", "blocks.1.mlp.up"}
    assert matched["*.mlp"] == {"blocks.0.mlp", "blocks.1.mlp.up"}
    assert all(is_inside(path, "*") for path in paths)
    assert not any(is_inside(path, "block") for path in paths)


def test_examples() -> None:
    assert doctest.testmod(module_paths).failed == 0
