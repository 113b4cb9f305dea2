"""The two tables side by side: differences that sum to the difference, each with the reason that made it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tensortide.cost import count
from tensortide.cost.differences import Comparison
from tensortide.cost.table import QUANTITIES
from tensortide.expr import Expr, total
from tensortide.importers.tf1.catamount import Reason, compare
from tests.conftest import ROOT
from tests.importers.tf1.costs.files import step, theirs
from tests.marks import some_slow

GRAPHS = ("simple_while", "dynamic_rnn_with_backprop", "word2vec", "word_lm", "resnet18", "bert_cased_L12")


@functools.cache
def compared(reference: Path, name: str) -> Comparison:
    imported = step(reference, name)
    return compare(theirs(reference, name), count(imported.graph), imported.symbols)


def change(reference: Path, name: str, quantity: str, reason: Reason, **setting: int) -> int:
    found = compared(reference, name)
    expr = found.by_reason[quantity].get(reason, (0, total([])))[1]
    return expr.evaluate({**found.theirs.symbols, **found.ours.symbols, **setting})


@pytest.mark.parametrize("name", some_slow(GRAPHS, ["bert_cased_L12", "resnet18"]))
def test_changes_sum_to_the_difference_and_types_that_differ_say_why(reference: Path, name: str) -> None:
    """By reason and by type, as expressions."""
    found = compared(reference, name)
    for quantity in QUANTITIES:
        difference = found.ours.totals[quantity] - found.theirs.totals[quantity]
        assert total(change for _, change in found.by_reason[quantity].values()) == difference
        by_type = found.by_type(quantity)
        assert total(b - a for a, b, _ in by_type.values()) == difference
        for kind, (a, b, reasons) in by_type.items():
            assert a == b or reasons, (quantity, kind)


def test_the_first_convolutions_input_gradient_is_pruned(reference: Path) -> None:
    found = [d for d in compared(reference, "resnet18").differences if d.type == "Conv2DBackpropInput"]
    dead = [d for d in found if d.reason is Reason.PRUNED and d.quantity == "flops"]
    assert [d.name for d in dead] == ["tower0/gradients/tower0/conv0/Conv2D_grad/Conv2DBackpropInput"]
    assert _value(dead[0].change, reference, "resnet18") == -7_552_892_928


def _value(expr: Expr, reference: Path, name: str) -> int:
    found = compared(reference, name)
    return expr.evaluate({**found.theirs.symbols, **found.ours.symbols})


def test_reasons_of_the_word_lm(reference: Path) -> None:
    """At the published setting, worked out by hand."""
    h, v, s, b = 2004, 10004, 80, 64
    at = {"h": h, "v": v, "s": s, "b": b}
    # both halves of a bias gradient: 5 sums over no axes per gradient loop (4 h b of the cell's products, ...)
    assert change(reference, "word_lm", "flops", Reason.NO_AXES, **at) < 0
    # tanh 6 -> 1 on four tensors per step and layer, softmax and its loss 3 -> 5 + 1/n per logit, L2 loss 3 -> 2n
    tanh = -5 * 4 * s * h * b
    loss = 2 * s * b * v + s * b
    norm = 2 * (16 * h * h + 8 * h + h * v + v + s * b * h) - 7 * 3
    assert change(reference, "word_lm", "flops", Reason.WEIGHTS, **at) == tanh + loss + norm
    # of each gradient loop the weight's 8 h^2 and the bias's 4 h, and the counters of all four loops
    accumulators = 4 * s * (2 * (8 * h * h + 4 * h) + 4)
    assert change(reference, "word_lm", "footprint", Reason.IN_PLACE, **at) == -accumulators
    assert change(reference, "word_lm", "parameters", Reason.UNTRAINED) == -2
    assert change(reference, "word_lm", "io", Reason.PRUNED, **at) == -4 * 4 * b * h


def test_reasons_of_bert(reference: Path) -> None:
    s, heads, layers = 128, 12, 12
    assert change(reference, "bert_cased_L12", "footprint", Reason.WORKSPACE) == -4 * layers * heads * s * s
    assert change(reference, "bert_cased_L12", "bytes", Reason.ONCE) == -4 * layers * heads * s * s
    assert Reason.PRUNED not in compared(reference, "bert_cased_L12").by_reason["flops"]


def test_unknown_types_are_a_reason(reference: Path) -> None:
    found = compared(reference, "resnet18").differences
    assert {d.type for d in found if d.reason is Reason.NO_RULE} == {"QueueDequeueV2"}


def test_every_reason_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "cost.md").read_text(), re.MULTILINE))
    assert documented == {reason.name.lower() for reason in Reason}
