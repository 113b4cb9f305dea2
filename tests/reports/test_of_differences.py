"""Tables of differences: what a field declares, of both sides, with signs; equal siblings folded."""

from __future__ import annotations

from typing import Annotated

import pytest

from tensortide.differences import Amounts, Node, Pair, Values, diff, flat
from tensortide.reports.blocks import Column
from tensortide.reports.of_differences import change_text, columns, folded, levels, signed_text, table
from tensortide.shown import Show


class Costs(Amounts, frozen=True):
    flops: Annotated[int, Show("FLOPs")] = 0
    peak_bytes: Annotated[int | None, Show("Peak", at_width=90)] = 0
    time_ns: float = 0.0

    @property
    def slowdown(self) -> Annotated[float, Show("Slowdown", "factor")]:
        return 1 + self.flops


def model(width: int, blocks: int = 3) -> Node[Costs]:
    def block(number: int) -> Node[Costs]:
        return Node(str(number), Costs(), (Node("mlp", Costs(width, 10)), Node("norm", Costs(1, 1))))

    return Node("", Costs(1), (Node("blocks", Costs(), tuple(map(block, range(blocks)))), Node("head", Costs(7))))


def pairs() -> tuple[Pair[Costs], ...]:
    a = flat({"mm": Costs(4, 100, 1.6), "add": Costs(0, None)}, Costs())
    return diff(a, flat({"mm": Costs(5, 80, 2.6), "relu": Costs(2)}, Costs())).children


def test_columns_are_of_both_sides_their_difference_and_change() -> None:
    names = ("a.flops", "b.flops", "difference.flops", "change.flops", "difference.peak_bytes", "own.flops")
    made = columns(Costs, pairs(), *names)
    assert [(one.key, one.label, one.unit) for one in made] == [
        ("a_flops", "FLOPs of A", "flops"),
        ("b_flops", "B", "flops"),
        ("difference_flops", "difference", "flops"),
        ("flops_change", "change", "change"),
        ("difference_peak_bytes", "Peak", "bytes"),
        ("own_difference_flops", "difference", "flops"),
    ]
    assert [one.values for one in made] == [
        (4, 0, 0),
        (5, 0, 2),
        (1, 0, 2),
        (0.25, None, None),
        (-20, None, 0),
        (1, 0, 2),
    ]
    assert [one.before for one in made[2:4]] == [("+", "", "+"), ()]
    assert [one.data for one in made] == [False] * 5 + [True]
    assert (made[4].at_width, made[4].zero) == (90, "-")


def test_sides_and_keys_have_names() -> None:
    made = columns(Costs, pairs(), "a.time_ns", "b.time_ns as step_ns", sides=("before", "after"), keys=("old", "new"))
    assert [(one.key, one.label, one.values) for one in made] == [
        *(("old_time_ns", "before", (2, 0, 0)), ("step_ns", "after", (3, 0, 0))),
    ]


def test_properties_are_shown_too_and_columns_stand_among_names() -> None:
    name = Column("op", "Op", "name", tuple(pair.name for pair in pairs()))
    made = table(Costs, pairs(), name, "difference.slowdown", key="kinds", top=2)
    assert (made["op"], made["difference_slowdown"]) == (("mm", "add", "relu"), (1, 0, 2))
    assert made.top == 2


def test_a_difference_that_is_nowhere_is_for_data_alone() -> None:
    same = diff(model(3), model(3)).children
    assert [one.data for one in columns(Costs, same, "difference.flops", "change.flops", "a.flops")] == [
        True,
        True,
        False,
    ]


def test_signs_and_changes_in_words() -> None:
    assert (signed_text(1024, "bytes"), signed_text(-3, "count"), signed_text(0, "ns")) == ("+1.00 KiB", "-3", "-")
    assert change_text(Values(100, 124), "count") == "+24.0 % (100 → 124)"
    assert change_text(Values(0, 3), "count") == "(0 → 3)"
    assert change_text(Values(1, 4), "count") == "4.0x (1 → 4)"


def test_siblings_that_differ_alike_are_one_row() -> None:
    rows = folded(diff(model(3), model(5)), ("flops", "peak_bytes"), 3)
    assert [(one.name, one.depth, one.count, one.values("flops")) for one in rows] == [
        ("blocks.[0-2].mlp", 0, 3, Values(9, 15)),
    ]
    more = folded(diff(model(3), model(3, blocks=5)), ("flops",), 3)
    assert [(one.name, one.kind, one.count) for one in more] == [("blocks.[3-4]", "added", 2)]


@pytest.mark.parametrize("width", [3, 4])
def test_equal_trees_have_no_rows(width: int) -> None:
    root = diff(model(3), model(width))
    assert bool(folded(root, ("flops",), 3)) is (width == 4)
    assert [depth for _, depth in levels(root)][:3] == [0, 1, 2]
