"""The totals are those of Count and Timeline, and add up."""

from __future__ import annotations

import msgspec
import pytest

from tensortide.cost import count
from tensortide.errors import UnknownCost
from tensortide.graph.model import Branch, Graph
from tensortide.reports import report
from tensortide.reports.blocks import Document, Note, Section
from tensortide.timelines import timeline
from tests.reports.graphs import BATCH, WIDTH, alone, empty, tower


def texts_of(section: Section, kind: str) -> list[str]:
    return [block.text for block in section.blocks if isinstance(block, Note) and block.kind == kind]


def test_totals_are_those_of_the_count(graph: Graph, document: Document) -> None:
    total, shown = count(graph).total, document["cost"]
    assert (shown.fact("flops"), shown.fact("macs"), shown.fact("accessed_bytes")) == (
        total.flops,
        total.macs,
        total.accessed_bytes,
    )
    assert total.flops == shown.fact("product_flops") + shown.fact("elementwise_flops")  # type: ignore[operator]
    assert sum(shown.table("phases")["flops"]) == total.flops  # type: ignore[arg-type]
    assert sum(value or 0 for value in document["ops"].table("ops")["flops"]) == total.flops  # type: ignore[misc]
    assert shown.fact("macs") == 3 * 4 * BATCH * WIDTH * WIDTH
    assert shown.fact("parameters") == 4 * WIDTH * WIDTH


def test_memory_is_that_of_the_timelines(graph: Graph, document: Document) -> None:
    eager, last_use = timeline(graph), timeline(graph, lifetimes="last_use")
    for section in (document["cost"], document["memory"]):
        assert section.fact("peak_bytes") == eager.peak_bytes
        assert section.fact("peak_op") == eager.peak_op
        assert section.fact("last_use_peak_bytes") == last_use.peak_bytes
        assert section.fact("persistent_bytes") == eager.persistent_bytes
        assert section.fact("footprint_bytes") == eager.footprint_bytes
    for column, line in (("peak_bytes", eager), ("last_use_peak_bytes", last_use)):
        phases = document["cost"].table("phases")
        expected = {phase.value: peak for phase, peak in line.peak_by_phase.items()}
        assert dict(zip(phases["phase"], phases[column], strict=True)) == expected


def test_unknown_costs_stay_unknown() -> None:
    document = report(alone())
    assert document["ops"].table("ops")["flops"] == (None,)
    assert document["cost"].fact("unknown_ops") == 1
    irregular = document["cost"].table("irregular")
    assert (irregular["name"], irregular["cost"]) == (("mylib.mystery",), ("unknown",))
    with pytest.raises(UnknownCost):
        report(alone(), strict=True)


def test_kinds_of_step() -> None:
    for graph, kind in ((tower(), "training"), (tower(train=False), "inference")):
        assert report(graph)["about"].fact("kind") == kind
    assert report(empty())["cost"].fact("ops") == 0


def test_assumptions_are_stated(document: Document) -> None:
    assert texts_of(document["cost"], "assumption") == []
    graph = tower()
    meta = msgspec.structs.replace(graph.meta, assumptions=("no padding",))
    assumed = report(msgspec.structs.replace(graph, meta=meta))
    assert texts_of(assumed["cost"], "assumption") == ["no padding"]


def test_arms_that_are_not_taken_are_in_no_total() -> None:
    """Two arms of a conditional: a product of one, a relu of the other."""
    graph = tower(layers=1, train=False)
    product, relu = graph.ops
    arms = (msgspec.structs.replace(product, branch=0), msgspec.structs.replace(relu, branch=1))
    document = report(msgspec.structs.replace(graph, ops=arms, branches=(Branch(0, 0), Branch(0, 1))))
    assert document["ops"].table("ops")["taken"] == (True, False)
    groups = document["ops"].table("groups")
    assert groups["name"] == ("aten.mm.default",)
    assert groups["flops"] == (document["cost"].fact("flops"),)
    (text,) = texts_of(document["cost"], "assumption")
    assert "other arms (1 op) count in memory over the step alone" in text
