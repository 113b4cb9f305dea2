"""Pictures of a step on many devices: what their axes say, and where they begin."""

from __future__ import annotations

import functools
import re

import pytest
from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration, Transformer
from tensortide.reports.blocks import Facts, Table
from tensortide.reports.pictures import Scatter
from tensortide.reports.render.figure import draw
from tensortide.reports.sections.scale import document, section
from tensortide.studies.scale import Candidate, ClosedForm, DegreeRequest, Problem, Scale, scale
from tensortide.timing.collectives import nodes_of
from tensortide.units import format_bytes


@functools.cache
def found() -> Scale:
    where = nodes_of("A100-SXM-80GB", devices_per_node=8)
    request = Problem(nodes=where, base=Configuration(batch=64), degrees=DegreeRequest(tensor=1, pipeline=1))
    return scale(request, ClosedForm(Transformer(layers=4, hidden=512, heads=8, seq=128)))


def picture(key: str) -> Scatter:
    return next(each for each in section(found()).blocks if isinstance(each, Scatter) and each.key == key)


def test_throughput_per_device_is_named_so_and_begins_at_zero() -> None:
    block = picture("scaling")
    assert block.title == "Throughput per device"
    assert block.y.label == "throughput per device (fewest: 100 %)"
    devices = {row.devices for row in (*found().strong, *found().weak)}
    assert block.x.ticks == tuple(sorted(devices))
    figure = draw(document(found()), ["scaling"])
    axis = figure.axes[0]
    figure.canvas.draw()
    low, high = axis.get_ylim()
    assert low == 0
    assert high > 1.02  # the points of the fewest devices, at 1, are whole
    shown = [label.get_text() for label in axis.get_xticklabels(which="both") if label.get_text()]
    assert shown == [f"{count:,}" for count in sorted(devices)]


def test_time_of_a_step_is_named_and_has_round_numbers() -> None:
    block = picture("trade")
    assert block.x.label == "step time"
    figure = draw(document(found()), ["trade"])
    figure.canvas.draw()
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels(which="both") if label.get_text()]
    assert len(shown) >= 2
    assert all(re.fullmatch(r"(1|15|2|3|5|7)0* ms", text) for text in shown), shown


def test_the_limit_of_a_device_is_drawn_near_the_points_and_else_named() -> None:
    most = max(one.found.peak_bytes for one in found().outcomes if one.found is not None)
    for times, drawn in ((1.5, True), (100.0, False)):
        limit = round(most * times)
        made = section(replace(found(), problem=replace(found().problem, memory_bytes=limit)))
        block = next(each for each in made.blocks if isinstance(each, Scatter) and each.key == "trade")
        assert [each.value for each in block.across] == [limit] * drawn
        assert block.y.label.endswith(f"device, of {format_bytes(limit)}") != drawn


def test_communication_is_what_neither_computes_nor_waits() -> None:
    """All of a step but its other parts, transfers between stages and collectives of tensor groups among them."""
    where = nodes_of("A100-SXM-80GB", devices_per_node=8)
    request = Problem(nodes=where, base=Configuration(batch=64))
    several = scale(request, ClosedForm(Transformer(layers=4, hidden=512, heads=8, seq=128)))
    others = ("compute", "recompute", "host", "bubble", "head", "optimizer", "rest", "straggler")
    made = section(several)
    shares = made.table("configurations")["communication_share"]
    sent = set()
    for share, one in zip(shares, several.legal, strict=True):
        assert one.found is not None
        rest = 1 - sum(one.found.parts.get(name, 0.0) for name in others) / one.found.time.time_ns
        assert share == pytest.approx(rest, abs=1e-6)
        sent |= {name for name, ns in one.found.parts.items() if ns and name not in others}
    assert sent == {"data", "tensor", "transfer"}
    for key, rows in (("strong", several.strong), ("weak", several.weak)):
        assert len(made.table(key)["communication_share"]) == len(rows)


def test_tokens_of_a_sample_stand_at_the_rate() -> None:
    for tokens, remark in ((128, "128 per sample: one sequence"), (1, "")):
        blocks = section(replace(found(), tokens=tokens)).blocks
        (rate,) = (
            row
            for each in blocks
            if isinstance(each, Facts)
            for row in each.rows
            if row.key.endswith("_per_s_and_device")
        )
        assert rate.remark == remark


def test_what_no_degree_divides_is_one_reason() -> None:
    reasons = [f"context={ranks}: aten.mm in layers.0 reads whole sequences" for ranks in (2, 4)]
    reasons += [f"batch / (data * micro-batch) = 8/{samples} is no whole number" for samples in (3, 5, 16)]
    outcomes = tuple(Candidate(found().outcomes[0].configuration, None, reason) for reason in reasons)
    shown = section(replace(found(), outcomes=outcomes))
    table = next(each for each in shown.blocks if isinstance(each, Table) and each.key == "reasons")
    columns = {column.key: column.values for column in table.columns}
    assert columns["reason"] == (
        "batch / (data * micro-batch) = 8/3, 5 or 16 is no whole number",
        "context=2 or 4: aten.mm in layers.0 reads whole sequences",
    )
    assert columns["count"] == (3, 2)
    assert columns["why"] == (reasons[2], reasons[0])
    every = next(each for each in shown.blocks if isinstance(each, Table) and each.key == "refused")
    assert next(column.values for column in every.columns if column.key == "reason") == tuple(reasons)
