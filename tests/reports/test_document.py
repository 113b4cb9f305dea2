"""A Document says what Count and Timeline say, and adds up."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from tensortide.cost import count
from tensortide.errors import UnknownCost
from tensortide.graph.model import Graph
from tensortide.memory import reserve
from tensortide.reports import report
from tensortide.reports.allocator import replayed
from tensortide.reports.document import Document, to_json
from tensortide.reports.fold import fold_modules, fold_tensors
from tensortide.reports.modules import op_groups, shared
from tensortide.reports.series import memory_by_role
from tensortide.timelines import by_module, timeline
from tests.reports.graphs import BATCH, WIDTH, alone, empty, tower


def test_totals_are_those_of_the_count(graph: Graph, document: Document) -> None:
    total, shown = count(graph).total, document.overview.total
    assert (shown.flops, shown.macs, shown.accessed_bytes) == (total.flops, total.macs, total.bytes)
    assert shown.flops == shown.product_flops + shown.elementwise_flops
    assert sum(row.work.flops for row in document.phases) == total.flops
    assert sum(value or 0 for value in document.ops.flops) == total.flops
    assert document.overview.total.macs == 3 * 4 * BATCH * WIDTH * WIDTH


def test_memory_is_that_of_the_timelines(graph: Graph, document: Document) -> None:
    for lifetimes, curve in (("eager", document.memory.eager), ("last_use", document.memory.last_use)):
        expected = timeline(graph, lifetimes=lifetimes)  # type: ignore[arg-type]
        assert curve.peak_bytes == expected.peak_bytes == max(curve.total_bytes)
        assert curve.peak_op == expected.peak_op
        assert curve.peak_bytes_by_phase == {phase.value: peak for phase, peak in expected.peak_by_phase.items()}
        series = memory_by_role(document, lifetimes)
        assert {role: values for role, values in series.items() if any(values)} == {
            str(role): values.tolist() for role, values in expected.by_role.items() if values.any()
        }
        assert np.array_equal(np.sum(list(series.values()), axis=0), expected.resident)
    assert list(document.ops.resident_bytes) == timeline(graph).resident.tolist()


def test_what_is_alive_at_the_peak_adds_up_to_it(document: Document) -> None:
    peak = document.overview.peak_bytes
    assert sum(row.nbytes for row in document.memory.at_peak) == peak
    assert sum(row.nbytes for row in document.memory.roles_at_peak) == peak
    assert sum(row.peak_bytes for row in document.modules if row.parent < 0) == peak
    assert sum(group.nbytes for group in fold_tensors(document)) == peak


def test_modules_include_what_is_inside_them(document: Document) -> None:
    rows = document.modules
    for i, row in enumerate(rows):
        inside = [other for other in rows if other.parent == i]
        assert row.flops == row.own_flops + sum(other.flops for other in inside)
        assert row.parameters >= sum(other.parameters for other in inside)
        assert all(other.depth == row.depth + 1 for other in inside)
    assert rows[0].parameters == document.overview.parameters == 4 * WIDTH * WIDTH
    assert sum(row.flops for row in rows if row.parent < 0) == document.overview.total.flops


def test_curves_are_short_and_keep_every_peak() -> None:
    graph = tower(layers=400)
    resident, document = timeline(graph).resident, report(graph)
    curve = document.memory.eager
    assert len(curve.op) <= 480 < len(graph)
    assert max(curve.total_bytes) == resident.max()
    assert all(resident[op] == nbytes for op, nbytes in zip(curve.op, curve.total_bytes, strict=True))


def test_equal_siblings_fold_into_one_line_with_their_sum(document: Document) -> None:
    lines = fold_modules(document.modules, depth=3)
    assert [(line.name, line.count, line.depth) for line in lines] == [
        ("(root)", 1, 0),
        ("layers.[0-3]", 4, 1),
        ("fc", 4, 2),
        ("(outside)", 1, 0),
    ]
    assert lines[1].flops == sum(row.flops for row in document.modules if row.type == "Block")
    assert [line.name for line in fold_modules(document.modules, depth=0)] == ["(root)", "(outside)"]


def test_calls_of_modules_are_those_of_the_memory(graph: Graph, document: Document) -> None:
    rows = {row.path: row for row in document.modules}
    for memory in by_module(graph):
        row = rows[memory.path]
        assert (row.retained_bytes, row.transient_bytes) == (memory.retained, memory.transient)
    [_, layers, *_] = fold_modules(document.modules, depth=3)
    blocks = [row for row in document.modules if row.type == "Block"]
    assert layers.retained_bytes == sum(row.retained_bytes for row in blocks)
    assert layers.transient_bytes == max(row.transient_bytes for row in blocks)


def test_what_paths_share() -> None:
    assert shared(["h.1.0", "h.2.0"]) == "h.*.0"
    assert shared(["h.1.0"]) == "h.1.0"
    assert shared(["", ""]) == ""


def test_groups_of_ops_with_and_without_their_shapes(document: Document) -> None:
    apart, together = op_groups(document.ops), op_groups(document.ops, apart=False)
    assert len(together) < len(apart)
    assert sum(g.flops for g in together) == sum(g.flops for g in apart) == document.overview.total.flops


def test_the_cuda_allocator_is_the_replay(graph: Graph) -> None:
    view, replay = replayed(graph, "cuda"), reserve(graph)
    assert view.peak_allocated_bytes == replay.peak_allocated
    assert view.peak_reserved_bytes == replay.reserved[view.peak_reserved_op] >= replay.peak_allocated
    assert replayed(empty(), "cuda").peak_reserved_op == -1


def test_unknown_costs_stay_unknown() -> None:
    document = report(alone())
    assert document.ops.flops == (None,)
    assert document.overview.total.unknown_ops == 1
    assert [(row.op, row.how) for row in document.overview.coverage.irregular] == [("mylib.mystery", "unknown")]
    with pytest.raises(UnknownCost):
        report(alone(), strict=True)


def test_kinds_of_step() -> None:
    assert report(tower()).overview.kind == "training"
    assert report(tower(train=False)).overview.kind == "inference"
    assert report(empty()).overview.ops == 0


def test_json_reads_back_as_the_same_document(document: Document) -> None:
    assert msgspec.json.decode(to_json(document), type=Document) == document


def test_json_of_names_that_are_no_text() -> None:
    document = report(tower(hostile="half\ud800a character"))
    assert "half\ud800a character.0" in json.loads(to_json(document))["ops"]["paths"]
