"""The memory curve under both lifetimes, what is alive at its peak, and allocators."""

from __future__ import annotations

import pytest

from tensortide.graph.model import Graph
from tensortide.memory import reserve
from tensortide.reports.blocks import Document
from tensortide.reports.pictures import Curve
from tensortide.reports.sections import Step
from tensortide.reports.sections.memory import document as memory_document
from tensortide.reports.sections.memory import section
from tensortide.timelines import timeline
from tensortide.timing import Durations
from tests.reports.graphs import empty


def curve_of(document: Document, key: str) -> Curve:
    found = document["memory"][key]
    assert isinstance(found, Curve)
    return found


@pytest.mark.parametrize(("key", "rule"), [("resident", "eager"), ("last_use", "last_use")])
def test_curves_are_the_timelines(graph: Graph, document: Document, key: str, rule: str) -> None:
    expected, curve = timeline(graph, lifetimes=rule), curve_of(document, key)  # type: ignore[arg-type]
    assert curve.totals() == expected.resident.tolist()
    assert {one.key: list(one.values) for one in curve.stack} == {
        str(role): values.tolist() for role, values in expected.by_role.items()
    }
    (mark,) = curve.marks
    assert mark.at == expected.peak_op


@pytest.mark.parametrize(("key", "death"), [("resident", "death_op"), ("last_use", "last_use_death_op")])
def test_storages_alive_make_up_the_curve(document: Document, key: str, death: str) -> None:
    storages, curve = document["memory"].table("storages"), curve_of(document, key)
    assert curve.death == death
    rows = list(zip(storages["size_bytes"], storages["birth_op"], storages[death], strict=True))
    totals = [sum(size for size, birth, end in rows if birth <= op < end) for op in range(len(curve))]  # type: ignore[misc, operator]
    assert totals == curve.totals()


def test_time_is_the_axis_where_durations_are_known(graph: Graph, document: Document) -> None:
    assert curve_of(document, "resident").x_unit == "op"
    ns = tuple(range(1, len(graph) + 1))
    curve = section(Step(graph, Durations(ns, "made up", "measured")))["resident"]
    assert isinstance(curve, Curve)
    assert (curve.x_unit, curve.x[:4], curve.x[-1]) == ("ns", (0, 1, 3, 6), sum(ns))


def test_what_is_alive_at_the_peak_adds_up_to_it(document: Document) -> None:
    for table in ("roles", "tensors"):
        assert sum(document["memory"].table(table)["size_bytes"]) == document["cost"].fact("peak_bytes")  # type: ignore[arg-type]


def test_the_cuda_allocator_is_the_replay(graph: Graph) -> None:
    shown, replay = section(Step(graph), allocator="cuda"), reserve(graph)
    assert shown.fact("peak_allocated_bytes") == replay.peak_allocated
    assert shown.fact("peak_reserved_bytes") == replay.peak_reserved
    assert shown.fact("peak_reserved_op") == int(replay.reserved.argmax())
    assert section(Step(empty()), allocator="cuda").fact("peak_reserved_op") is None


def test_the_document_of_memory_alone(graph: Graph) -> None:
    document = memory_document(Step(graph))
    assert [one.key for one in document.sections] == ["memory", "modules"]
    phases = document["memory"].table("phases")
    assert max(phases["peak_bytes"]) == document["memory"].fact("peak_bytes")  # type: ignore[type-var]
    assert "folded_memory" in [block.key for block in document["modules"].blocks]
