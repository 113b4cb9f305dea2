"""A plan shown: one screen of text, pictures over time, lanes that say why, and the same as data."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from functools import cache

import msgspec
import pytest
from rich.console import Console

from tensortide import plan
from tensortide.plans import Compute, Evict, Fetch, Lane, Offload, Plan
from tensortide.plans.model import Step
from tensortide.plans.planned import Planned
from tensortide.plans.under_budget.known import Rival
from tensortide.replays import replay_transfers
from tensortide.reports.blocks import Document, Table
from tensortide.reports.pictures import Curve, Spans
from tensortide.reports.render.json import render_json
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.render.trace import render_trace
from tensortide.reports.sections.planned import document
from tensortide.timelines import timeline
from tensortide.timing.links import Link
from tests.reports.graphs import tower

GRAPH = tower(6)
TIMES = tuple(1000 + 37 * op for op in range(len(GRAPH)))
WITHOUT = timeline(GRAPH, lifetimes="last_use", durations_ns=TIMES)
OP, USED = 1, 20
"""The first relu, and the op of the backward pass that uses it."""
HIDDEN, STORAGE = (GRAPH.index.allocated[op][0] for op in (0, OP))
RUNS = [Compute(op) for op in range(len(GRAPH))]
LINKS = {"recompute": (), "offload": (Link("host", Fraction(10**9, 2), 500),)}
STEPS: dict[str, list[Step]] = {
    "recompute": [*RUNS[:2], Evict(HIDDEN), RUNS[2], Evict(STORAGE), *RUNS[3:USED], *RUNS[: OP + 1], *RUNS[USED:]],
    "offload": [*RUNS[:3], Offload(STORAGE), *RUNS[3:USED], Fetch(STORAGE), *RUNS[USED:]],
}


@cache
def found(way: str) -> Planned:
    """A plan for the first relu, as a search would find it."""
    made = Plan(GRAPH.index.digest, (Lane("cpu", tuple(STEPS[way])),))
    line = replay_transfers(GRAPH, made, durations_ns=TIMES, links=LINKS[way])
    whole = plan(GRAPH, 1 << 40, durations_ns=TIMES)
    return msgspec.structs.replace(
        whole, plan=made, step_ns=line.makespan_ns, peak_bytes=line.peak_bytes, budget_bytes=line.peak_bytes
    )


@cache
def shown(way: str) -> Document:
    return document(found(way), GRAPH, TIMES, links=LINKS[way], source="measured (on a bench)")


def text_of(one: Document) -> str:
    out = io.StringIO()
    render_terminal(one, Console(file=out, width=100, color_system=None))
    return out.getvalue()


ways = pytest.mark.parametrize("way", LINKS)


@ways
def test_the_answer_is_one_screen(way: str) -> None:
    lines = text_of(shown(way)).splitlines()
    assert len(lines) <= 43  # two more name a file and the next command
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    for part in (
        "Fits: ",
        "Class of plans: ",
        "Predicted time: ops, recomputation",
        "this plan",
        "no budget",
        "At the peak",
        "times: measured",
    ):
        assert part in text
    assert ("Transfers: host out" in text) == (way == "offload")
    assert "bench" not in text  # what is in brackets is data
    assert shown(way)["plan"].fact("times") == "measured (on a bench)"


@ways
def test_the_peaks_are_those_of_both_timelines_and_add_up(way: str) -> None:
    table = shown(way)["plan"].table("peaks")
    for key, peak in (("without_bytes", WITHOUT.peak_bytes), ("with_bytes", found(way).peak_bytes)):
        total, *parts = table[key]
        assert total == peak == sum(parts)  # type: ignore[arg-type]


@ways
def test_the_pictures_have_both_steps_over_time_under_one_budget(way: str) -> None:
    section, one = shown(way)["plan"], found(way)
    memory, without = section["memory"], section["without"]
    assert isinstance(memory, Curve)
    assert isinstance(without, Curve)
    assert one.step_ns is not None
    assert memory.x_unit == without.x_unit == "ns"
    assert (memory.x[0], memory.x[-1]) == (0, max(one.step_ns, one.base_ns))
    assert (without.x[0], without.x[-1]) == (0, one.base_ns)
    assert max(memory.totals()) == one.peak_bytes
    assert max(without.totals()) == max(memory.lines[0].values) == WITHOUT.peak_bytes
    assert memory.limits == without.limits
    assert memory.limits[0].value == one.budget_bytes
    for curve in (memory, without):
        assert curve.totals()[curve.marks[0].at] == max(curve.totals())
    assert one.plan is not None
    line = replay_transfers(GRAPH, one.plan, durations_ns=TIMES, links=LINKS[way], budget_bytes=one.budget_bytes)
    assert bool(line.played.stall_ns) == (way == "offload")
    shaded = sum(memory.x[s.end] - memory.x[s.start] for s in memory.shades)
    assert shaded == line.played.stall_ns
    assert ("place_host" in [block.key for block in section.blocks]) == (way == "offload")


@ways
def test_every_run_and_transfer_is_an_interval_that_says_where_and_why(way: str) -> None:
    section, one = shown(way)["plan"], found(way)
    spans, steps = section["lanes"], section["steps"]
    assert isinstance(spans, Spans)
    assert isinstance(steps, Table)
    compute = spans.lanes[0]
    assert one.plan is not None
    again = [compute.rows[i] for i, kind in enumerate(compute.kinds) if kind == "recompute"]
    runs = [step.op for step in one.plan.lanes[0].steps if isinstance(step, Compute)]
    assert len(again) == len(runs) - len(set(runs))
    moved = [row for lane in spans.lanes[1:-1] for row in lane.rows]
    assert bool(moved) == (way == "offload")
    for row in (*again, *moved):
        assert steps["module"][row]
        assert steps["size_bytes"][row]
        assert " to " in str(steps["why"][row])
    assert [steps["waited"][row] != "" for row in spans.lanes[-1].rows] == [True] * len(spans.lanes[-1].rows)


@ways
def test_a_trace_of_any_plan_is_over_time(way: str) -> None:
    trace = json.loads(render_trace(shown(way)))
    assert "time_axis" not in trace["otherData"]
    tracks = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert tracks == ["compute", *(f"host {end}" for end in ("out", "in") if way == "offload"), "stalls"]
    counters = {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"}
    assert {"Memory of cpu with the plan (bytes)", "Memory of cpu without the plan (bytes)"} <= counters
    assert ("Memory of host (bytes)" in counters) == (way == "offload")


@ways
def test_all_of_it_is_data(way: str) -> None:
    data = json.loads(render_json(shown(way)))["sections"]["plan"]
    assert {"memory", "without"} <= data["curves"].keys()
    assert {"rivals", "peaks", "steps", "ops"} <= data["tables"].keys()
    assert {"recompute", "offload"} & data["tables"].keys()
    assert data["spans"]["lanes"]["lanes"]


def test_what_does_not_fit_says_what_must_be_resident_at_which_op() -> None:
    one = plan(GRAPH, WITHOUT.peak_bytes * 2 // 5, durations_ns=TIMES)
    assert one.status == "infeasible"
    made = document(one, GRAPH, TIMES)
    section = made["plan"]
    assert sum(section.table("needed")["size_bytes"]) == one.least.nbytes  # type: ignore[arg-type]
    text = " ".join(text_of(made).split())
    assert "Does not fit" in text
    assert "a larger budget, --offload host, or a smaller batch" in text  # parameters stay, in any order


def test_the_best_plan_of_each_kind_stands_first_and_the_fastest_before_slower_ones() -> None:
    rivals = (
        Rival("lru", "online policy", 1200, 80),
        Rival("checkpoint layers.*", "modules", 1500, 70),
        Rival("dtr-eq", "online policy", 1100, 90),
        Rival("chen", "static plan", None, None, "the ops do not run in recorded order"),
    )
    one = msgspec.structs.replace(found("recompute"), rivals=rivals)
    table = document(one, GRAPH, TIMES)["plan"].table("rivals")
    assert table["name"][1:3] == ("online policy: dtr-eq", "checkpoint layers.*")
    assert table.top == 3


def test_a_module_is_named_once_for_all_that_it_recomputes() -> None:
    """The two ops are in a block and in its layer; the second recomputes one tensor of 8 KiB."""
    table = shown("recompute")["plan"].table("recompute")
    assert table["module"] == ("layers.0", "layers.0.fc")
    assert table["size_bytes"] == (8192, 8192)
    assert sum(table["time_ns"]) == TIMES[0] + TIMES[1]  # type: ignore[arg-type]
