"""The difference of two trees: complete, additive, and equal to one found key by key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.differences import Amounts, Matcher, Node, Pair, Together, Values, diff, flat, grouped, match, relative

NAMES = st.sampled_from("abcd")
LISTS = st.lists(st.tuples(NAMES, st.integers(0, 3)), max_size=8)


class Costs(Amounts, frozen=True):
    ops: int = 0
    peak_bytes: int | None = 0

    @property
    def bytes_per_op(self) -> float:
        return (self.peak_bytes or 0) / self.ops if self.ops else 0.0


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Node[Costs]:
    own = Costs(draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    names = draw(st.lists(NAMES, max_size=3, unique=True)) if depth else []
    children = [draw(trees(depth=depth - 1)) for _ in names]
    return Node(
        "step", own, tuple(Node(name, one.own, one.children) for name, one in zip(names, children, strict=True))
    )


def by_key(node: Node[Costs], path: str = "") -> dict[str, Costs]:
    """The own amounts by path: the oracle's view of a tree."""
    found = {path: node.own}
    for child in node.children:
        found |= by_key(child, f"{path}/{child.name}")
    return found


def pairs_by_key(pair: Pair[Costs], path: str = "") -> dict[str, Pair[Costs]]:
    found = {path: pair}
    for child in pair.children:
        found |= pairs_by_key(child, f"{path}/{child.name}")
    return found


@given(trees(), trees())
def test_pairs_are_those_of_the_keys_of_both(a: Node[Costs], b: Node[Costs]) -> None:
    left, right, found = by_key(a), by_key(b), pairs_by_key(diff(a, b))
    assert found.keys() == left.keys() | right.keys()
    for path, pair in found.items():
        assert pair.own == (left.get(path, Costs()), right.get(path, Costs()))
        assert (pair.a is None, pair.b is None) == (path not in left, path not in right)
        inside = [key for key in left.keys() | right.keys() if key == path or key.startswith(f"{path}/")]
        kind = "added" if path not in left else "removed" if path not in right else "changed"
        if kind == "changed" and all(left.get(key) == right.get(key) for key in inside):
            kind = "same"
        assert pair.kind == kind


@given(trees(), trees())
def test_amounts_of_pairs_add_up(a: Node[Costs], b: Node[Costs]) -> None:
    root = diff(a, b)
    assert root.whole == (a.whole, b.whole)
    assert sum((pair.own[1] - pair.own[0] for pair in root.walk()), Costs()) == root.difference == b.whole - a.whole
    for pair in root.walk():
        assert sum((child.difference for child in pair.children), pair.own[1] - pair.own[0]) == pair.difference
    assert Together([*root.children, root]).values("ops").b == sum(one.own.ops for one in b.walk()) * 2 - b.own.ops
    back = diff(b, a)
    assert back.difference == Costs() - root.difference


@given(trees())
def test_a_tree_is_the_same_as_itself(tree: Node[Costs]) -> None:
    root = diff(tree, tree)
    assert {pair.kind for pair in root.walk()} == {"same"}
    assert root.difference == Costs()


@given(LISTS, LISTS)
def test_the_nth_of_a_key_is_matched_with_the_nth(a: list[tuple[str, int]], b: list[tuple[str, int]]) -> None:
    found = match(a, b, lambda one: one[0])
    for side, all_ in enumerate((a, b)):
        assert sorted(one for pair in found if (one := pair[side]) is not None) == sorted(all_)
    both = Counter(x[0] for x, y in found if x and y)
    assert both == Counter(name for name, _ in a) & Counter(name for name, _ in b)
    assert all(x[0] == y[0] for x, y in found if x and y)
    for name in "abcd":
        assert [x for x, _ in found if x and x[0] == name] == [x for x in a if x[0] == name]


def test_lists_have_plain_numbers_as_amounts() -> None:
    found = diff(flat({"mm": 4.0, "add": 2.0}, 0.0), flat({"mm": 5.0, "relu": 1.0}, 0.0))
    assert [(pair.name, pair.kind, pair.difference) for pair in found.children] == [
        *(("mm", "changed", 1.0), ("add", "removed", -2.0), ("relu", "added", 1.0)),
    ]
    assert found.whole == (6.0, 6.0)
    assert found.kind == "changed"
    assert found.children[0].values().change == 0.25


def test_texts_are_the_same_or_not_and_have_no_difference() -> None:
    found = diff(flat({"dtype": "float32", "device": "cpu"}, ""), flat({"dtype": "bfloat16", "device": "cpu"}, ""))
    assert {pair.name: pair.kind for pair in found.children} == {"dtype": "changed", "device": "same"}
    assert found.children[0].values() == ("float32", "bfloat16")
    assert found.children[0].difference is None


def test_sums_and_differences_with_an_unknown_amount_are_unknown() -> None:
    known, unknown = {"a": Costs(1, 5), "b": Costs(0, 2)}, {"a": Costs(1, None), "b": Costs(0, 3)}
    root = diff(flat(known, Costs()), flat(unknown, Costs()))
    assert root.children[0].difference == Costs(0, None)
    assert root.children[0].values("peak_bytes") == (5, None)
    assert root.values("peak_bytes") == (7, None)
    assert root.values("ops") == (1, 1)


def test_values_are_fields_or_properties_of_the_whole() -> None:
    found = diff(Node("", Costs(2, 10)), Node("", Costs(4, 10))).values("bytes_per_op")
    assert (found, found.difference, found.change) == (Values(5.0, 2.5), -2.5, -0.5)


@pytest.mark.parametrize(
    ("a", "b", "change"), [(4, 5, 0.25), (0, 5, None), (None, 5, None), (5, None, None), (5, 0, -1)]
)
def test_a_relative_change_is_a_part_of_the_first(a: Any, b: Any, change: float | None) -> None:
    assert relative(a, b) == change


class Anyhow(Matcher[int]):
    """Pairs an outer node that wraps one node with None, and what is wrapped by position."""

    def inside(self, a: Node[int], b: Node[int]) -> Any:
        if b.name == "wrapper":
            return (None, b), [(a, b.children[0])]
        return (a, b), zip(a.children, b.children, strict=True)


def test_a_matcher_pairs_renamed_nodes_and_what_is_wrapped() -> None:
    inner = Node("layers", 1, (Node("fc", 2),))
    root = diff(Node("blocks", 1, (Node("fc", 2),)), Node("wrapper", 5, (inner,)), Anyhow())
    assert [(pair.name, pair.kind, pair.whole) for pair in root.walk()] == [
        *(("wrapper", "added", (3, 8)), ("blocks → layers", "renamed", (3, 3)), ("fc", "same", (2, 2))),
    ]
    assert root.difference == 5


def test_pairs_alike_are_one_row_with_sums() -> None:
    found = diff(flat({"h.0": 1, "h.1": 2, "head": 3}, 0), flat({"h.0": 2, "h.1": 4, "head": 3}, 0))
    first, second = grouped(found.children, lambda pair: pair.name.split(".")[0])
    assert (first.name, first.count, first.values(), first.kind) == ("h.0", 2, Values(3, 6), "changed")
    assert second.whole == (3, 3)
