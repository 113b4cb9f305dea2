"""The section of idle memory: figures that add up, advice, text, comparison, data, page, figures and trace."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console

import tensortide
from tensortide.graph.model import Graph
from tensortide.reports.blocks import Document, Note, Table
from tensortide.reports.pictures import Curve, Scatter, Spans
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.figure import render_figure
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.render.trace import render_trace
from tensortide.reports.sections import Step, idle, sections_of
from tensortide.reports.sections.idle import compared, document
from tensortide.timelines import Idleness, idleness, offloads
from tensortide.timelines.idle import byte_ns
from tensortide.timing import LINKS, Durations, link
from tests.golden import assert_golden
from tests.reports.conftest import Open
from tests.reports.graphs import alone, empty, tower

GOLDEN = Path(__file__).with_name("idle.txt")
FAST = link("1TB/s,0.001us")
LITTLE = pytest.mark.parametrize("graph", [alone(), empty(), tower(train=False)], ids=["alone", "empty", "inference"])


def analysed(graph: Graph, mode: Any = "storage") -> Idleness:
    return idleness(graph, [1000 * (1 + i % 4) for i in range(len(graph))], mode=mode)


def made(graph: Graph, mode: Any = "storage", top: int = 10) -> Document:
    return document(analysed(graph, mode), FAST, durations="made up", top=top)


@cache
def deep() -> Document:
    return made(tower(12))


@cache
def deep_idle() -> Idleness:
    return analysed(tower(12))


def fact(found: Document, key: str) -> Any:
    return found["idle"].fact(key)


def column(found: Document, table: str, key: str) -> list[Any]:
    return list(found["idle"].table(table)[key])


def curve() -> Curve:
    found = deep()["idle"]["live"]
    assert isinstance(found, Curve)
    return found


def lifetimes(found: Document) -> Spans:
    block = found["idle"]["lifetimes"]
    assert isinstance(block, Spans)
    return block


def text_of(found: Document, width: int = 100, encoding: str = "utf-8") -> str:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding=encoding)
    render_terminal(found, Console(file=out, width=width, no_color=True, highlight=False))
    out.flush()
    return data.getvalue().decode(encoding)


# Figures


def test_rows_add_up() -> None:
    found, total = deep(), deep_idle().total
    for part in ("active", "idle", "unused"):
        key = f"{part}_byte_ns"
        assert sum(column(found, "roles", key)) == fact(found, key) == getattr(total, key)
    assert sum(column(found, "roles", "count")) == fact(found, "storages") == total.count
    assert (
        fact(found, "peak_bytes")
        == max(curve().totals())
        == fact(found, "peak_in_use_bytes") + fact(found, "peak_idle_bytes")
    )
    assert curve().totals() == deep_idle().live.tolist()
    assert curve().lines[0].values == tuple(deep_idle().active.tolist())
    assert fact(found, "most_in_use_bytes") == max(curve().lines[0].values)
    links = column(found, "links", "link")
    assert set(links) == {*LINKS, FAST.name}
    hidden = column(found, "links", "hidden_byte_ns")[links.index(FAST.name)]
    assert sum(column(found, "offload", "hideable_byte_ns")) == hidden > 0
    assert fact(found, "hidden") == column(found, "links", "hidden")[links.index(FAST.name)]


def test_storages_alike_stand_together() -> None:
    table = deep()["idle"].table("offload")
    indexes = [str(text).split() for text in table["indexes"]]
    assert max(map(len, indexes)) >= 10
    row = next(i for i, role in enumerate(table["role"]) if role == "parameter" and len(indexes[i]) > 1)
    assert (table["tensor"][row], table["module"][row], table["source"][row]) == (
        "weight",
        "layers.[0-11].fc",
        "train.py:10",
    )
    sizes = dict(zip(column(deep(), "storages", "index"), column(deep(), "storages", "size_bytes"), strict=True))
    assert table["size_bytes"][row] == sum(sizes[int(index)] for index in indexes[row])
    everything = [index for one in indexes for index in one]
    assert len(everything) == len(set(everything))


def test_lifetimes_are_uses_and_idle_time() -> None:
    largest = deep()["idle"].table("largest")
    lanes = lifetimes(deep()).lanes
    assert len(lanes) == len(largest)
    for lane in lanes:
        assert all(start < end for start, end in zip(lane.start, lane.end, strict=True))
        assert lane.start[1:] == lane.end[:-1]
        spent = [
            end - start for start, end, name in zip(lane.start, lane.end, lane.names, strict=True) if name == "idle"
        ]
        assert sum(spent) == largest["idle_ns"][lane.rows[0]] <= fact(deep(), "op_sum_ns") if lane.rows else True
        assert lane.label == largest["tensor"][lane.rows[0]]


def test_many_intervals_are_sampled_and_those_of_most_memory_time_stay() -> None:
    graph = tower(410)
    found, intervals = made(graph), sorted(analysed(graph).intervals, key=byte_ns, reverse=True)
    block = found["idle"]["intervals"]
    assert isinstance(block, Scatter)
    points = [(x, y) for one in block.points if not one.joined for x, y in zip(one.x, one.y, strict=True)]
    assert len(points) == 2000 < fact(found, "intervals")
    assert block.remark.startswith("2,000 of ")
    assert {(interval.time, life.nbytes) for life, interval in intervals[:500]} <= set(points)
    lengths = found["idle"]["lengths"]
    assert isinstance(lengths, Scatter)
    assert all(len(one.x) <= 201 and one.y[-1] == 1 and [*one.y] == sorted(one.y) for one in lengths.points)  # type: ignore[type-var]
    assert len(msgspec.json.encode(idle.section(analysed(graph), FAST))) < 800_000


def test_a_weight_that_is_used_a_thousand_times_stays_drawable() -> None:
    """It is used by every second op: no gap would be seen."""
    graph = tower(1)
    ops = tuple([op for pair in zip([graph.ops[0]] * 1000, [graph.ops[1]] * 1000, strict=True) for op in pair])
    found = made(msgspec.structs.replace(graph, ops=ops))
    largest = found["idle"].table("largest")
    (row,) = [i for i, role in enumerate(largest["role"]) if role == "parameter"]
    (lane,) = [lane for lane in lifetimes(found).lanes if lane.rows[0] == row]
    step = fact(found, "op_sum_ns")
    assert list(zip(lane.start, lane.end, lane.names, strict=True)) == [
        (0, step - 4000, "in use"),
        (step - 4000, step, "idle"),
    ]
    assert largest["idle_ns"][row] == sum((1000 * (1 + i % 4)) for i in range(1, 2000, 2))


@LITTLE
def test_steps_with_little_in_them(graph: Graph, tmp_path: Path) -> None:
    for durations in ([0] * len(graph), [5] * len(graph)):
        found = document(idleness(graph, durations))
        assert text_of(found)
        assert json.loads(render_trace(found))
        assert json.loads(render_json(found))
        assert render_html(found)
        assert render_csv(found, "storages").count("\n") == 1 + len(idleness(graph, durations).lives)
        assert text_of(compared(found, deep()))
        if len(graph) and not any(durations):
            render_figure(found, tmp_path / "a.svg")


def test_every_report_has_the_section_where_durations_are_known() -> None:
    graph = tower(4)
    durations = Durations((1000,) * len(graph), "made up", "estimated")
    (found,) = [one for one in sections_of(Step(graph, durations)) if one.key == "idle"]
    assert found.fact("op_sum_ns") == 1000 * len(graph)
    assert "idle" not in [one.key for one in sections_of(Step(graph))]


# Text


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_text_keeps_to_the_width(width: int) -> None:
    for text in (text_of(deep(), width), text_of(compared(deep(), made(tower(3))), width)):
        assert max(len(line) for line in text.splitlines()) <= width
        assert all(line == line.rstrip() for line in text.splitlines())


def test_text_is_as_agreed() -> None:
    assert_golden(text_of(deep()), GOLDEN)


def test_text_says_what_to_do_and_where() -> None:
    found, text = deep(), text_of(deep(), 140)
    notes = [block.text for block in found["idle"].blocks if isinstance(block, Note)]
    assert len(notes) == 5
    for told in notes:
        assert " ".join(told.split()) in " ".join(text.split())
    assert "durations made up" in text
    table = found["idle"].table("recompute")
    line = next(line for line in text.split("Worth recomputing")[1].splitlines() if str(table["module"][0]) in line)
    assert str(table["source"][0]) in line
    assert f"x{len(str(table['indexes'][0]).split())}" in line
    assert "Tensor  " not in text_of(made(tower(12), top=0))
    assert "> 1TB/s,0.001us" in text
    assert text_of(found, encoding="ascii").isascii()


def test_what_draws_random_numbers_says_so() -> None:
    """A dropout mask is allocated by one op, drawn by the next and scaled in place."""

    def workload() -> Callable[[], object]:
        model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout()) for _ in "abc"))
        return lambda: model(torch.ones(64, 64)).sum().backward()

    found = made(tensortide.capture(workload))
    table = found["idle"].table("recompute")
    (row,) = [i for i, random in enumerate(table["random"]) if random]
    shown = [table[key][row] for key in ("tensor", "op_name", "ops", "random")]
    assert shown == [
        "bernoulli_.float",
        "bernoulli_.float",
        "empty_like, bernoulli_.float, div_.Scalar",
        "bernoulli_.float",
    ]
    assert len(str(table["indexes"][row]).split()) == 2
    text = " ".join(text_of(found, 140).split())
    assert "3 random" in text
    assert "random: draws random numbers: recomputed by hand it needs the generator state saved" in text
    assert not any(column(deep(), "recompute", "random"))


@pytest.mark.parametrize("latency", ["0.001us", "0.01us", "45us"])
def test_moves_that_would_be_mostly_latency_are_not_advised(latency: str) -> None:
    over, graph = link(f"1TB/s,{latency}"), tower(12)
    slow = idleness(graph, [10**9] * len(graph))
    least = {"0.001us": 1_000, "0.01us": 10_000, "45us": 45_000_000}[latency]
    worth = {row.index for row in offloads(slow, over) if row.nbytes >= least}
    found = idle.section(slow, over)
    advised = [block for block in found.blocks if block.key == "offload"]
    indexes = [text for block in advised if isinstance(block, Table) for text in block["indexes"]]
    assert {int(index) for text in indexes for index in str(text).split()} == worth
    assert bool(worth) == (latency != "45us")


def test_no_name_paints_the_terminal() -> None:
    assert "\x1b" not in text_of(made(tower(12, hostile="\x1b[31m")))


def test_a_comparison_has_both_sides_and_their_difference() -> None:
    found = compared(deep(), made(tower(24)))
    table = found["idle"].table("figures")
    rows = {key: row for *row, key in zip(*(table[k] for k in ("a", "b", "change", "name")), strict=True)}
    assert rows["ops"] == [60, 120, 1.0]
    assert rows["peak_bytes"][1] == fact(made(tower(24)), "peak_bytes")
    assert set(found["idle"].table("roles")["name"]) == {f"{role}_bytes" for role in column(deep(), "roles", "role")}
    text = text_of(found)
    assert "hideable over 1TB/s,0.001us" in text
    assert "longer than 10 us" in text
    assert "longer than 10 s" not in text


def test_compat_counts_every_tensor() -> None:
    found = made(tower(4), "compat")
    assert fact(found, "storages") == len(tower(4).tensors) == len(found["idle"].table("storages"))
    assert "as it ran" not in text_of(found)
    assert "every tensor counts for itself" in text_of(found)


def test_the_peak_beside_the_memory_of_the_device() -> None:
    text = text_of(document(deep_idle(), capacity_bytes=2 * 408 << 10))
    assert "The peak is 50.0 % of the 816.0 KiB that the device has, which is enough." in text


# Files


def test_csv_has_every_storage() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(deep(), "storages"))))
    lives = deep_idle().lives
    assert [int(row["index"]) for row in rows] == [life.index for life in lives]
    spent = sum(int(row["size_bytes"]) * int(row["idle_ns"]) for row in rows)
    assert spent == fact(deep(), "idle_byte_ns")
    assert {row["recompute_ns"] for row in rows if row["role"] == "parameter"} == {""}
    assert sum(int(row["hideable_intervals"]) for row in rows) == fact(deep(), "hidden")
    live = [0] * len(deep_idle().graph)
    for row in rows:
        for op in range(int(row["birth_op"]), int(row["death_op"])):
            live[op] += int(row["size_bytes"])
    assert live == deep_idle().live.tolist()


@pytest.mark.slow
def test_a_figure_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        render_figure(made(tower(2)), tmp_path / name, idle.FIGURES)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_counters_of_the_trace_are_memory_live_and_in_use() -> None:
    events = json.loads(render_trace(deep()))["traceEvents"]
    clock = deep_idle().clock_ns
    for name, series in (("Memory over the step", deep_idle().live), ("in use", deep_idle().active)):
        steps = {}
        for event in events:
            if event["name"] == f"{name} (bytes)":
                ((_, value),) = event["args"].items()
                steps[round(1000 * event["ts"])] = value
        level, levels = 0, []
        for at in clock[:-1]:
            level = steps.get(at, level)
            levels.append(level)
        assert levels == series.tolist()
        assert steps[clock[-1]] == 0


def test_tracks_of_the_trace_are_lifetimes() -> None:
    tracks: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in json.loads(render_trace(deep()))["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["tid"]].append(event)
    lanes, largest = lifetimes(deep()).lanes, deep()["idle"].table("largest")
    assert len(tracks) == len(lanes)
    for track, lane in enumerate(lanes):
        slices = tracks[track]
        assert [round(1000 * e["ts"]) for e in slices] == list(lane.start)
        assert [e["name"] for e in slices] == list(lane.names)
        assert slices[0]["args"]["module"] == largest["module"][lane.rows[0]]


# Page


def test_the_page_has_its_blocks(open_html: Open) -> None:
    found, page = deep(), open_html(render_html(deep()), 1280)
    text = page.inner_text("body")
    assert next(block.text for block in found["idle"].blocks if isinstance(block, Note)) in text
    assert "durations made up" in text
    intervals = found["idle"]["intervals"]
    assert isinstance(intervals, Scatter)
    assert page.locator("[id='idle.intervals'] path.pick").count() >= sum(len(one.x) for one in intervals.points)
    assert page.locator("[id='idle.lifetimes'] rect").count() == sum(len(lane.start) for lane in lifetimes(found).lanes)
    row = page.locator("[id='idle.offload'] .vbody [role=row]").first.inner_text()
    assert "layers.[0-11].fc" in row
    assert "train.py:10" in row


def test_bars_of_lifetimes_name_their_tensors(open_html: Open) -> None:
    page = open_html(render_html(deep()), 1280)
    bar = page.locator("[id='idle.lifetimes'] rect").nth(1)
    bar.scroll_into_view_if_needed()
    bar.hover()
    tip = page.inner_text("#tip")
    assert "idle" in tip
    assert lifetimes(deep()).lanes[0].label in tip
    page.mouse.move(0, 0)
    assert page.is_hidden("#tip")


@LITTLE
def test_pages_with_little_in_them(open_html: Open, graph: Graph) -> None:
    page = open_html(render_html(made(graph)), 390)
    assert page.is_visible(".verdict")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_takes_any_name(open_html: Open) -> None:
    page = open_html(render_html(made(tower(410, hostile="<b>bold</b>"))), 390)
    assert "2,000 of " in page.inner_text("body")
    assert page.locator("b:has-text('bold')").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
