"""The join of two module trees: complete, exact, and right about renamed, added and wrapped modules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given

from tensortide.cost import count
from tensortide.graph import Graph
from tensortide.graph.model import OUTSIDE_PATH
from tensortide.measures.differences.modules import join
from tensortide.measures.differences.side import ModulePair, Side
from tensortide.measures.differences.step import StepDifference
from tensortide.recorder import capture, resolver
from tensortide.reports.sections.headline import headline
from tensortide.timelines import timeline
from tensortide.timelines.module_figures import NONE, ModuleFigures
from tests.graphs import graphs, stored
from tests.measures.differences.models import adapted, difference

PLAIN: dict[str, Any] = {}


def summed(pairs: list[ModulePair], at: int) -> ModuleFigures:
    return sum((pair.own[at] for pair in pairs), NONE)


def test_what_every_step_has_is_no_module_that_matches() -> None:
    a = adapted("fc", torch.nn.Linear(64, 64), torch.rand(1, 64))
    b = adapted("table", torch.nn.Embedding(4000, 16), torch.zeros(1, dtype=torch.long))
    found = StepDifference(Side("a", a), Side("b", b))
    outside = next(pair for pair in found.root.walk() if pair.path == OUTSIDE_PATH)
    assert outside.a
    assert outside.b
    assert min(one.flops for one in outside.own) > 10 * 64 * 64  # of Adam
    assert (found.matching.shares, found.matching.same, found.matching.changed) == ((0, 0), 0, 0)
    assert (found.matching.removed, found.matching.added) == (("fc",), ("table",))
    assert str(found.matching).startswith(
        "The models hardly match: 0 % of A's FLOPs and 0 % of B's in modules are in what"
    )
    assert "No modules match; 1 only in A (fc)" in str(found.matching)
    assert headline(found)[0].startswith("the models hardly match. Whole step: ")
    a, b = (capture(lambda n=n: torch.ones(n).sin(), name="sin") for n in (3, 5))
    alone = StepDifference(Side("3", a), Side("5", b))
    assert alone.matching.joined
    assert str(alone.matching) == "There are no modules to match."


def assert_exact(a: Side, b: Side, root: ModulePair) -> None:
    """Every module of either side stands in the join once, and the modules' own figures sum to the totals, which are
    those that are counted without any modules."""
    pairs = [*root.walk()]
    for at, side in enumerate((a, b)):
        nodes = [node for pair in pairs if (node := (pair.a, pair.b)[at]) is not None]
        assert len(nodes) == len(set(nodes)) == sum(1 for _ in side.tree.walk())
        own, total = summed(pairs, at), count(side.graph, resolver=resolver).total
        assert own == root.whole[at]
        assert (own.ops, own.unknown_ops, own.flops, own.macs, own.accessed_bytes) == (
            total.ops,
            total.unknown_ops,
            total.flops,
            total.macs,
            total.accessed_bytes,
        )
        assert own.peak_bytes == timeline(side.graph).peak_bytes
    differences = [pair.own[1] - pair.own[0] for pair in pairs]
    assert sum(differences, NONE) == root.difference
    for pair in pairs:
        assert pair.whole == tuple(sum((child.whole[at] for child in pair.children), pair.own[at]) for at in (0, 1))


@given(graphs(), graphs())
def test_differences_of_modules_sum_to_that_of_the_step(one: Graph, other: Graph) -> None:
    a, b = Side("a", one), Side("b", other)
    assert_exact(a, b, join(a, b))


@given(graphs())
def test_a_step_is_joined_with_itself(graph: Graph) -> None:
    a, b = Side("a", graph), Side("b", graph)
    root = join(a, b)
    assert {pair.kind for pair in root.walk()} == {"same"}
    assert root.difference == NONE
    assert all(pair.a is not None and pair.b is not None and pair.a.path == pair.b.path for pair in root.walk())


CASES: dict[str, dict[str, Any]] = {
    "renamed": {"name": "layers"},
    "wrapped": {"wrapped": True},
    "longer": {"blocks": 6},
    "shorter": {"blocks": 3},
    "doubled": {"doubled": 3},
    "checkpointed": {"checkpointed": True},
    "bf16": {"dtype": "bfloat16"},
    "batch": {"batch": 16},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_real_models_are_joined_exactly(settings: dict[str, Any]) -> None:
    found = difference(PLAIN, settings)
    assert_exact(found.a, found.b, found.root)
    back = difference(settings, PLAIN)
    assert back.root.difference == NONE - found.root.difference


def kinds(found: ModulePair) -> dict[str, str]:
    return {pair.label: pair.kind for pair in found.walk()}


def test_a_list_under_another_name_is_renamed_and_all_in_it_is_the_same() -> None:
    found = difference(PLAIN, {"name": "layers"})
    assert kinds(found.root)["layers"] == "renamed"
    assert kinds(found.root)["layers.3.mlp.fc1"] == "same"
    assert found.matching.renamed == (("blocks", "layers"),)
    assert found.matching.added == found.matching.removed == ()
    assert found.root.difference == NONE


def test_a_wrapper_is_added_around_what_it_wraps() -> None:
    found = difference(PLAIN, {"wrapped": True})
    assert found.matching.added == ("(root)",)
    assert found.matching.renamed == (("(root)", "model"),)
    assert kinds(found.root)["model.blocks.3.mlp.fc1"] == "same"
    assert found.root.difference == NONE


def test_a_longer_list_has_members_at_its_end() -> None:
    found = difference(PLAIN, {"blocks": 6})
    assert found.matching.added == ("blocks.4", "blocks.5")
    assert difference({"blocks": 6}, PLAIN).matching.removed == ("blocks.4", "blocks.5")


def test_a_member_that_differs_keeps_its_partner_where_one_is_inserted_before_it() -> None:
    """blocks.3, alone in being wide, is blocks.4 with one more block before it."""
    found = difference({"doubled": 3}, {"doubled": 4, "blocks": 5})
    (wide,) = (pair for pair in found.root.walk() if pair.name == "3 → 4")
    assert wide.kind == "renamed"
    assert len(found.matching.added) == 1
    assert sum(pair.kind == "changed" for pair in found.root.walk()) == 4  # the step, the root, the list, the optimizer


def test_models_of_two_families_are_joined_as_far_as_they_go() -> None:
    a, b = (Side(name, stored(name)) for name in ("gpt2", "llama"))
    root = join(a, b)
    assert_exact(a, b, root)
    names = {pair.b.path: pair.a.path for pair in root.walk() if pair.a and pair.b}
    assert names["layers.1"] == "blocks.1"
    assert names["layers.1.attention.out"] == "blocks.1.attention.out"


def test_a_step_without_ops_or_modules() -> None:
    empty = Side("empty", Graph((), (), (), ()))
    root = join(empty, empty)
    assert root.whole == (NONE, NONE)


def test_amounts_add_up_field_by_field() -> None:
    fields = len(ModuleFigures.__struct_fields__)
    one = ModuleFigures(*range(1, fields + 1))
    assert one + one - one == one
    assert msgspec.structs.astuple(one - one) == (0,) * fields


def test_modules_are_aligned_in_the_order_in_which_they_run() -> None:
    """Two blocks of one structure, whose classes register the norms at other places."""

    class Block(torch.nn.Module):
        def __init__(self, names: tuple[str, ...], order: tuple[int, ...]) -> None:
            super().__init__()
            made = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
            self.run = names
            for place in order:
                self.add_module(names[place], made[place])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name in self.run:
                x = self.get_submodule(name)(x)
            return x

    one = Block(("n1", "attend", "n2", "feed"), (0, 1, 2, 3))
    other = Block(("before", "attention", "after", "mlp"), (1, 3, 0, 2))
    sides = [Side("s", capture(model, torch.randn(2, 8), loss="sum")) for model in (one, other)]
    pairs = {pair.a.name: pair.b.name for pair in join(*sides).walk() if pair.a and pair.b}
    assert pairs.items() >= {"n1": "before", "attend": "attention", "n2": "after", "feed": "mlp"}.items()
