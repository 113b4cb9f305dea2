"""The section of a plan of several devices as played: its text, figures, page and trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tensortide.reports.blocks import Table
from tensortide.reports.pictures import Curve
from tensortide.reports.render.trace import render_trace
from tensortide.timing.clusters import Tier
from tests.golden import assert_golden
from tests.replays.test_lanes import HOST, stages, two_stages

GOLDEN = Path(__file__).with_name("played_lanes.txt")


def test_print_shows_what_every_device_engine_and_wire_does() -> None:
    line = two_stages(stages(), (Tier(HOST, channel=0),))
    assert_golden(str(line), GOLDEN)
    assert repr(line).endswith(" 270 ns per step on 2 devices.>")


def test_figures_are_those_of_the_timeline_and_engines_that_idle_are_left_out() -> None:
    line = two_stages(stages(), (Tier(HOST), Tier(replace(HOST, name="ssd"))))
    (section,) = line.document().sections
    lanes, memory = section["lanes"], section["memory"]
    assert isinstance(lanes, Table)
    assert isinstance(memory, Curve)
    assert section.fact("makespan_ns") == line.makespan_ns == 230
    assert lanes["lane"] == tuple(name for name in line.lanes if " ssd " not in name)
    assert lanes["busy_ns"] == (40, 20, 100, 100, 40, 40)
    assert lanes["peak_bytes"] == (*line.peaks_bytes, None, None, None, None)
    assert tuple(max(one.values) for one in memory.stack) == line.peaks_bytes


def test_the_trace_has_a_thread_for_each_lane() -> None:
    line = two_stages(stages(), (Tier(HOST),))
    events = json.loads(render_trace(line.document()))["traceEvents"]
    assert [each["args"]["name"] for each in events if each["name"] == "thread_name"] == [*line.lanes]
    assert [each["cat"] for each in events if each.get("cat") in ("copy", "fetch")] == ["copy", "fetch"]
