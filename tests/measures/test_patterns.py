"""Input patterns turn batches into arguments, and refuse what is no pattern and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.measures.backend import Arguments
from tensortide.measures.patterns import InputPattern

ENTRIES = st.integers(0, 40) | st.just("_") | st.sampled_from(["ids", "mask", "x", "labels"])


def expected(pattern: tuple[Any, ...], batch: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The rule, read literally: the i-th smallest integer, the i-th argument."""
    positional: list[Any] = []
    for wanted in range(41):
        positional += [batch[i] for i, entry in enumerate(pattern) if entry == wanted]
    return positional, {e: batch[i] for i, e in enumerate(pattern) if isinstance(e, str) and e != "_"}


@given(st.lists(ENTRIES, min_size=2, max_size=7).map(tuple))
def test_arguments_follow_the_integers_and_the_names(pattern: tuple[Any, ...]) -> None:
    used = [entry for entry in pattern if entry != "_"]
    if len(set(used)) < len(used):
        with pytest.raises(TypeError, match="twice"):
            InputPattern(pattern)
        return
    batch = [f"element {i}" for i in range(len(pattern))]
    found = InputPattern(pattern)
    positional, named = expected(pattern, batch)
    assert found.arguments(batch) == Arguments(tuple(positional), named)
    assert found.left_out(tuple(batch)) == {i: batch[i] for i, entry in enumerate(pattern) if entry == "_"}
    with pytest.raises(ValueError, match=f"{len(pattern)} entries, the batch {len(pattern) + 1}"):
        found.arguments([*batch, "more"])


@given(st.lists(ENTRIES, max_size=5, unique=True).map(tuple), st.data())
def test_what_is_no_entry_is_a_type_error(pattern: tuple[Any, ...], data: st.DataObject) -> None:
    wrong: Any = data.draw(
        st.integers(max_value=-1) | st.booleans() | st.floats() | st.none() | st.just("a b") | st.just("if")
    )
    place = data.draw(st.integers(0, len(pattern)))
    with pytest.raises(TypeError, match="an entry of an input pattern"):
        InputPattern((*pattern[:place], wrong, *pattern[place:]))


@pytest.mark.parametrize("pattern", [(), ("_",), {}])
def test_nothing_is_taken_of_any_batch_by_an_empty_pattern_or_a_single_placeholder(pattern: Any) -> None:
    assert InputPattern(pattern).arguments(object()) == Arguments()


@pytest.mark.parametrize("batch", [[1, 2, 3], (1,), {"a": 1}, 7])
def test_a_pattern_of_one_entry_takes_the_batch_whole(batch: Any) -> None:
    assert InputPattern((5,)).arguments(batch) == Arguments((batch,))
    assert InputPattern(("x",)).arguments(batch) == Arguments((), {"x": batch})


def test_a_dict_pattern_maps_keys_to_arguments() -> None:
    pattern = InputPattern({"ids": "input_ids", "image": 1, "mask": 0, "label": "_"})
    batch = {"ids": 10, "image": 11, "mask": 12, "label": 13, "name": 14}
    assert pattern.arguments(batch) == Arguments((12, 11), {"input_ids": 10})
    assert pattern.left_out(batch) == {"label": 13, "name": 14}


def test_what_does_not_fit_a_pattern_is_a_value_error() -> None:
    for pattern, batch, text in (
        ((0, "_"), {"ids": 1, "labels": 2}, "keys 'ids', 'labels'"),
        ((0, "_"), "ab", "takes a tuple of 2"),
        ({"ids": "x"}, (1, 2), "takes a dict, and the batch is a tuple"),
        ({"ids": "x", "mask": "m"}, {"ids": 1}, r"no 'mask', .* it has 'ids'"),
    ):
        with pytest.raises(ValueError, match=text):
            InputPattern(pattern).arguments(batch)


@pytest.mark.parametrize("pattern", [[0, "_"], 0, "_", None, {0, 1}])
def test_a_pattern_of_another_type_is_a_type_error(pattern: Any) -> None:
    with pytest.raises(TypeError, match="is a tuple"):
        InputPattern(pattern)
