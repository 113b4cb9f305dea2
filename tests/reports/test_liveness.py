"""Liveness as it is shown: sentences, text, comparison, page, figures, trace, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from rich.console import Console

import tensortide
from tensortide.graph.model import Graph
from tensortide.reports.build import former_report as report
from tensortide.reports.html import render_html
from tensortide.reports.liveness import LivenessStudy, LivenessView, study, with_liveness
from tensortide.reports.liveness.compare import render_comparison
from tensortide.reports.liveness.figures import FIGURES, draw_all, overview_figure
from tensortide.reports.liveness.sheet import sheet
from tensortide.reports.liveness.terminal import render_liveness
from tensortide.reports.trace import render_trace
from tensortide.timelines import offloads
from tensortide.timing import LINKS, link
from tests.reports.conftest import Open
from tests.reports.graphs import alone, empty, tower

if TYPE_CHECKING:
    from playwright.sync_api import Page

FAST = link("1TB/s,0.001us")


def made(graph: Graph, mode: Any = "storage") -> LivenessStudy:
    durations = [1000 * (1 + i % 4) for i in range(len(graph))]
    return study(graph, durations, durations="made up", link=FAST, mode=mode)


@cache
def deep() -> LivenessStudy:
    return made(tower(12))


def printed(render: Callable[[Console], None], width: int = 100, encoding: str = "utf-8") -> str:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding=encoding)
    render(Console(file=out, width=width, no_color=True, highlight=False))
    out.flush()
    return data.getvalue().decode(encoding)


def text_of(view: LivenessView, width: int = 100, top: int = 10, encoding: str = "utf-8") -> str:
    return printed(lambda console: render_liveness(view, console, top=top), width, encoding)


# Figures


def test_rows_add_up() -> None:
    view, idle = deep().view, deep().idle
    assert sum(row.total_byte_ns for row in view.roles) == view.total.total_byte_ns == idle.total.total_byte_ns
    assert sum(row.count for row in view.roles) == view.storages == view.total.count
    assert view.peak.live_bytes == max(view.curves.live_bytes) == view.peak.active_bytes + view.peak.idle_bytes
    assert view.active_peak_bytes == max(view.curves.active_bytes)
    series = list(view.curves.live_by_role.values())
    assert [sum(column) for column in zip(*series, strict=True)] == list(view.curves.live_bytes)
    assert sum(row.hideable_byte_ns for row in view.offload) == view.chosen.byte_ns > 0
    assert len(view.points.ns) == view.periods == len(view.quantile_ns)
    assert {item.link for item in view.links} == {*LINKS, FAST.name}


def test_storages_alike_stand_together() -> None:
    rows = deep().view.offload
    assert max(len(row.indexes) for row in rows) >= 10
    weights = next(row for row in rows if row.first.role == "parameter" and len(row.indexes) > 1)
    assert (weights.modules, weights.first.source) == ("layers.*.fc", "train.py:10")
    assert weights.nbytes == len(weights.indexes) * weights.first.nbytes
    everything = [index for row in rows for index in row.indexes]
    assert len(everything) == len(set(everything))


def test_lives_tell_uses_and_idle_time() -> None:
    study_ = deep()
    for bar in study_.view.lives:
        in_use = sum(end - start for start, end in bar.used_ns)
        assert in_use + bar.idle_ns == bar.death_ns - bar.birth_ns <= study_.view.step_ns
        assert all(start < end for start, end in bar.used_ns)


def test_many_periods_are_sampled_and_those_of_most_memory_time_stay() -> None:
    study_ = made(tower(900))
    points, spans = study_.view.points, sorted(study_.idle.spans(), key=lambda s: -s.nbytes * s.ns)
    assert len(points.ns) == 2000 < study_.view.periods
    shown = set(zip(points.index, points.start, strict=True))
    assert {(span.index, span.period.start) for span in spans[:500]} <= shown
    assert len(study_.view.curves.op) == 480
    assert max(study_.view.curves.live_bytes) == study_.view.peak.live_bytes
    assert len(msgspec.json.encode(study_.view)) < 200_000


def test_a_weight_that_is_used_a_thousand_times_stays_drawable() -> None:
    """It is used by every second op: no gap would be seen."""
    graph = tower(1)
    ops = tuple([op for pair in zip([graph.ops[0]] * 1000, [graph.ops[1]] * 1000, strict=True) for op in pair])
    view = made(msgspec.structs.replace(graph, ops=ops)).view
    (bar,) = [bar for bar in view.lives if bar.stored.role == "parameter"]
    assert bar.used_ns == ((0, view.step_ns - 4000),)
    assert bar.idle_ns == sum((1000 * (1 + i % 4)) for i in range(1, 2000, 2))


@pytest.mark.parametrize("graph", [alone(), empty(), tower(train=False)], ids=["alone", "empty", "inference"])
def test_steps_with_little_in_them(graph: Graph, tmp_path: Path) -> None:
    for durations in ([0] * len(graph), [5] * len(graph)):
        study_ = study(graph, durations)
        assert text_of(study_.view)
        assert json.loads(render_trace(report(graph), study_))
        assert render_html(with_liveness(report(graph), study_.view))
        assert sheet(study_).count("\n") == 1 + len(study_.idle.lives)
        overview_figure(study_, tmp_path / "a.svg")


# Text


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_text_keeps_to_the_width(width: int) -> None:
    other = made(tower(3))
    for text in (
        text_of(deep().view, width),
        printed(lambda console: render_comparison(deep().view, other.view, console), width),
    ):
        assert max(len(line) for line in text.splitlines()) <= width
        assert all(line == line.rstrip() for line in text.splitlines())


def test_text_tells_what_to_do_and_where() -> None:
    view = deep().view
    text = text_of(view, 140)
    for told in (view.verdict, *view.advice):
        assert " ".join(told.split()) in " ".join(text.split())
    assert "durations made up" in text
    row = view.recompute[0]
    line = next(line for line in text.split("Worth recomputing")[1].splitlines() if row.modules in line)
    assert row.first.source in line
    assert f"x{len(row.indexes)}" in line
    assert "Worth" not in text_of(view, top=0)
    assert "> 1TB/s,0.001us" in text
    assert text_of(view, encoding="ascii").isascii()


def test_what_draws_random_numbers_says_so() -> None:
    """A dropout mask is allocated by one op, drawn by the next and scaled in place."""

    def workload() -> Callable[[], object]:
        model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout()) for _ in "abc"))
        return lambda: model(torch.ones(64, 64)).sum().backward()

    view = made(tensortide.capture(workload)).view
    (mask,) = [row for row in view.recompute if row.random]
    assert (mask.first.name, mask.first.op_name, len(mask.indexes)) == ("bernoulli_.float", "bernoulli_.float", 2)
    assert (mask.ops, mask.random) == (("empty_like", "bernoulli_.float", "div_.Scalar"), ("bernoulli_.float",))
    text = " ".join(text_of(view, 140).split())
    assert "3 random bernoulli_.float" in text
    assert "random: draws random numbers: recomputed by hand it needs the generator state saved" in text
    assert not any(row.random for row in deep().view.recompute)


@pytest.mark.parametrize("latency", ["0.001us", "0.01us", "45us"])
def test_moves_that_would_be_mostly_latency_are_not_advised(latency: str) -> None:
    over = link(f"1TB/s,{latency}")
    graph = tower(12)
    found = study(graph, [10**9] * len(graph), link=over)
    least = {"0.001us": 1_000, "0.01us": 10_000, "45us": 45_000_000}[latency]
    worth = {row.index for row in offloads(found.idle, over) if row.nbytes >= least}
    assert {index for row in found.view.offload for index in row.indexes} == worth
    assert bool(worth) == (latency != "45us")


def test_no_name_paints_the_terminal() -> None:
    assert "\x1b" not in text_of(made(tower(12, hostile="\x1b[31m")).view)


def test_a_comparison_has_both_sides_and_their_ratio() -> None:
    text = printed(lambda console: render_comparison(deep().view, made(tower(24)).view, console))
    (row,) = [line.split() for line in text.splitlines() if line.startswith("  ops ")]
    assert row == ["ops", "60", "120", "x", "2"]
    assert "hideable over 1TB/s,0.001us, of periods" in text


def test_compat_counts_every_tensor() -> None:
    view = made(tower(4), "compat").view
    assert view.resident_peak_bytes is None
    assert view.storages == len(tower(4).tensors)
    assert "every tensor counts for itself" in text_of(view)


# Files


def test_csv_has_every_storage() -> None:
    study_ = deep()
    rows = list(csv.DictReader(io.StringIO(sheet(study_))))
    assert [int(row["index"]) for row in rows] == [life.index for life in study_.idle.lives]
    spent = sum(int(row["nbytes"]) * int(row["idle_ns"]) for row in rows)
    assert spent == study_.view.total.idle_byte_ns
    assert {row["recompute_ns"] for row in rows if row["role"] == "parameter"} == {""}
    assert sum(int(row["hideable_periods"]) for row in rows) == study_.view.chosen.count


def test_every_figure_is_drawn(tmp_path: Path) -> None:
    paths = draw_all(deep(), tmp_path / "figures")
    assert {path.stem for path in paths} == set(FIGURES)
    for path in paths:
        head = path.read_bytes()[:60]
        assert head.startswith(b"\x89PNG") if path.suffix == ".png" else b"<?xml" in head


def test_a_figure_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        overview_figure(deep(), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def events_of(study_: LivenessStudy, graph: Graph) -> list[dict[str, Any]]:
    parsed = json.loads(render_trace(report(graph), study_))
    assert parsed["otherData"]["time_axis"] == "Durations of ops: made up."
    found: list[dict[str, Any]] = parsed["traceEvents"]
    return found


def test_the_trace_has_ops_at_their_times_with_module_and_line() -> None:
    graph, study_ = tower(12), deep()
    ops = [e for e in events_of(study_, graph) if e["ph"] == "X" and "op" in e.get("args", {})]
    assert [e["args"]["op"] for e in ops] == list(range(len(graph)))
    assert [round(1000 * e["ts"]) for e in ops] == list(study_.idle.clock_ns[:-1])
    assert [round(1000 * e["dur"]) for e in ops] == list(study_.idle.durations_ns)
    assert ops[0]["args"]["module"] == "layers.0.fc"
    assert ops[0]["args"]["source"].endswith("train.py:10")
    phases = [e for e in events_of(study_, graph) if e["ph"] == "X" and e["name"] == "backward"]
    assert sum(round(1000 * e["dur"]) for e in phases) == sum(
        ns for op, ns in zip(graph.ops, study_.idle.durations_ns, strict=True) if op.phase == "backward"
    )


def test_counters_of_the_trace_are_memory_alive_and_in_use() -> None:
    graph, study_ = tower(12), deep()
    events = events_of(study_, graph)
    for name, series in (("memory alive", study_.idle.live), ("memory in use", study_.idle.active)):
        steps = {round(1000 * e["ts"]): e["args"]["bytes"] for e in events if e["name"] == f"{name} (bytes)"}
        level, levels = 0, []
        for at in study_.idle.clock_ns[:-1]:
            level = steps.get(at, level)
            levels.append(level)
        assert levels == series.tolist()
        assert steps[study_.idle.step_ns] == 0


def test_tracks_of_the_trace_are_lives() -> None:
    graph, study_ = tower(12), deep()
    tracks: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events_of(study_, graph):
        if event["ph"] == "X" and event["pid"] == 2:
            tracks[event["tid"]].append(event)
    assert len(tracks) == len(study_.view.lives)
    for track, bar in enumerate(study_.view.lives):
        slices = tracks[track]
        ends = [round(1000 * (e["ts"] + e["dur"])) for e in slices]
        assert [round(1000 * e["ts"]) for e in slices] == [bar.birth_ns, *ends[:-1]]
        assert ends[-1] == bar.death_ns
        assert sum(round(1000 * e["dur"]) for e in slices if e["name"] == "idle") == bar.idle_ns
        assert slices[0]["args"]["module"] == bar.stored.module


# Page


@pytest.fixture
def open_page(open_html: Open) -> Open:
    """A function that opens the page of a step."""

    def opened(graph: Graph, width: int = 1280, mode: str = "storage") -> Page:
        return open_html(render_html(with_liveness(report(graph), made(graph, mode).view)), width)

    return opened


def test_the_page_has_the_pane(open_page: Open) -> None:
    view, page = deep().view, open_page(tower(12))
    text = page.inner_text("#liveness")
    assert view.verdict in text
    assert "durations made up" in text
    assert page.is_visible("nav >> text=Liveness")
    assert page.locator("#liveness circle:not(.ring):not(.peak-dot)").count() == sum(ns > 0 for ns in view.points.ns)
    assert page.locator("#liveness path.frontier").count() >= 1
    assert page.locator("#liveness svg.lives .alive-bar").count() == len(view.lives)
    row = page.locator("#liveness .across").nth(0).locator("tbody tr").first.inner_text()
    assert view.offload[0].modules in row
    assert view.offload[0].first.source in row


def test_points_and_bars_tell_of_their_tensors(open_page: Open) -> None:
    view, page = deep().view, open_page(tower(12))
    bars = page.locator("#liveness svg.lives")
    bars.scroll_into_view_if_needed()
    box = bars.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 12)
    tip = page.inner_text("#tip")
    assert view.lives[0].stored.module in tip
    assert view.lives[0].stored.source in tip
    assert "idle" in tip
    bars.click(position={"x": box["width"] / 2, "y": 12})
    assert view.lives[0].stored.module in page.inner_text("#liveness .picked")
    points = page.locator("#liveness .pair svg").first
    points.focus()
    points.press("ArrowRight")
    told = page.inner_text("#liveness .picked")
    assert "idle from after" in told
    assert "train.py:" in told
    page.mouse.move(0, 0)
    assert page.is_hidden("#tip")


def test_memory_in_use_is_told_over_time(open_page: Open) -> None:
    page = open_page(tower(12))
    plot = page.locator("#liveness .chart svg").first
    plot.focus()
    plot.press("Home")
    tip = page.inner_text("#tip")
    assert "op 0" in tip
    assert "in use, at most" in tip
    assert "train.py:10" in tip


@pytest.mark.parametrize("graph", [alone(), empty(), tower(train=False)], ids=["alone", "empty", "inference"])
@pytest.mark.parametrize("width", [390, 1600])
def test_pages_with_little_in_them(open_page: Open, graph: Graph, width: int) -> None:
    page = open_page(graph, width)
    assert page.is_visible("#liveness .verdict")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_says_what_it_leaves_out_and_takes_any_name(open_page: Open) -> None:
    page = open_page(tower(900, hostile="<b>bold</b>"), 390)
    assert "2\u2009000 of " in page.inner_text("#liveness")
    assert page.locator("b:has-text('bold')").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert open_page(tower(4), mode="compat").is_visible("text=every tensor counts for itself")


def test_a_report_without_durations_has_no_pane(open_html: Open) -> None:
    page = open_html(render_html(report(tower(4))))
    assert page.is_hidden("#liveness")
    assert page.is_hidden("nav >> text=Liveness")
