"""The headline names the cause: which module, what became of it, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from tensortide.differences import Values
from tensortide.measures.differences.side import Side
from tensortide.measures.differences.step import StepDifference
from tensortide.reports.of_differences import change_text
from tensortide.reports.sections.headline import headline, ops_without_rule
from tests.graphs import Builder
from tests.measures.differences.models import difference, stack


def said(a: dict[str, Any], b: dict[str, Any]) -> str:
    return " ".join(headline(difference(a, b)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"doubled": 3}, "blocks.3.mlp doubled in FLOPs, mostly fc"),
        ({"blocks": 5}, "blocks.4 was added"),
        pytest.param({"blocks": 6}, "blocks.[4-5] were added", marks=pytest.mark.slow),
        ({"blocks": 3}, "blocks.3 was removed"),
        pytest.param(
            {"batch": 16}, "batch 8 → 16; all modules scale alike. Whole step: FLOPs +9", marks=pytest.mark.slow
        ),
        ({"dtype": "bfloat16"}, "dtype float32 → bfloat16; all modules scale alike. Whole step: peak memory -"),
        ({"checkpointed": True}, "B recomputes "),
        ({"wrapped": True}, "1 module has another name ((root) → model)"),
    ],
)
def test_the_first_words_name_the_cause(settings: dict[str, Any], words: str) -> None:
    base = {"dtype": "float32", "batch": 8} if settings.keys() & {"dtype", "batch"} else {}
    assert words in said(base, {**base, **settings})


def test_a_doubled_layer_is_named_with_its_memory() -> None:
    cause, peak = (
        headline(difference({}, {"doubled": 1, "batch": 16}))[0],
        said({"batch": 16}, {"doubled": 1, "batch": 16}),
    )
    assert cause
    assert "activations of blocks.1.mlp" in peak
    assert "FLOPs +" in peak
    assert "parameters +" in peak


def test_back_is_the_other_way_round() -> None:
    assert "blocks.3.mlp halved" in said({"doubled": 3}, {})
    assert "B no longer recomputes" in said({"checkpointed": True}, {})


def test_two_causes_are_both_named() -> None:
    assert "blocks.[1,3].mlp doubled in FLOPs. Whole step: " in said({}, {"doubled": 3, "also": 1})


def test_what_grew_and_what_shrank_are_no_one_ratio() -> None:
    found = StepDifference(Side("", stack(32, 32, 32, 32)), Side("", stack(32, 32, 48, 20)))
    text = headline(found)[0]
    pairs = {pair.path: pair for pair in found.root.walk()}
    grown, shrunk = (pairs[path].whole[1].flops / pairs[path].whole[0].flops for path in ("blocks.2", "blocks.3"))
    assert grown > 1 > shrunk
    assert text.startswith(f"blocks.2 {_became_by(grown)} and blocks.3 {_became_by(shrunk)}. Whole step: FLOPs +")
    back = headline(StepDifference(found.b, found.a))[0]
    assert back.startswith(
        f"blocks.2 {_became_by(1 / grown)} and blocks.3 {_became_by(1 / shrunk)}. Whole step: FLOPs -"
    )


def _became_by(ratio: float) -> str:
    return f"grew {ratio:.2f}x in FLOPs" if ratio > 1 else f"shrank to {ratio:.2f}x in FLOPs"


def test_modules_that_differ_are_named_where_the_totals_are_equal() -> None:
    found = StepDifference(Side("", stack(16, 32, 64, 128)), Side("", stack(16, 64, 32, 128)))
    ops = len(found.a.graph)
    assert headline(found) == (f"The totals are equal, of {ops} ops each, and the modules are not: blocks.[1-2].",)


def test_nothing_differs() -> None:
    ops = len(difference({}, {}).a.graph)
    assert said({}, {}) == f"No difference: both have the same {ops:,} ops, sizes and memory."


def test_changes_are_written_for_people() -> None:
    assert change_text(Values(100 << 20, 110 << 20), "bytes") == "+10.0 % (100.0 MiB → 110.0 MiB)"
    assert change_text(Values(1 << 20, 4 << 20), "bytes") == "4.0x (1.00 MiB → 4.00 MiB)"
    assert change_text(Values(0, 1 << 20), "bytes") == "(0 B → 1.00 MiB)"
    assert change_text(Values(10**9, 10**9 + 10**3), "flops") == "+0.0001 % (+1.00 kFLOP)"


def test_ops_without_a_rule_are_counted_on_both_sides() -> None:
    builder = Builder()
    builder.op([builder.storage(8)], [builder.storage(8, birth=0)], name="mylib.mix.default")
    side = Side("unknown", builder.graph())
    assert "1 of 1 ops of A and 1 of 1 ops of B" in ops_without_rule(StepDifference(side, side))
    assert not ops_without_rule(difference({}, {}))
