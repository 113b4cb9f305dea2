"""A plan that moves storages, as a trace: engines side by side, stalls with causes, bytes of places, arrows."""

from __future__ import annotations

import json
from typing import Any

from tensortide.plans import Compute, Evict, Fetch, Offload
from tensortide.reports.render.trace import render_trace
from tensortide.reports.sections.transfers import section
from tests.replays.test_transfers import PUBLISHED, played


def trace_of(*steps: Any, **options: Any) -> list[dict[str, Any]]:
    """The events of the trace of a plan of the published example."""
    document = section(played(*steps, **options)).document("example")
    events: list[dict[str, Any]] = json.loads(render_trace(document))["traceEvents"]
    return events


def slices(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, float]]]:
    """Name, start and end in ns of what each thread shows."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[tuple[str, float, float]]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            found[names[event["tid"]]].append((event["name"], start, start + round(event["dur"] * 1000)))
    return found


def test_each_engine_is_a_track_and_stalls_say_their_cause() -> None:
    found = slices(trace_of(*PUBLISHED))
    assert list(found) == ["compute", "host out", "host in", "ssd out", "ssd in", "stalls"]
    assert [times for _, *times in found["compute"]] == [[0, 4], [4, 9], [11, 14], [14, 20], [27, 32]]
    a = "u8[6] of test.op"
    assert found["host out"] == [(f"copy {a}", 4, 11)]
    assert found["host in"] == [(f"fetch {a}", 20, 27)]
    assert found["stalls"] == [
        (f"waits for room on the device: {a} leaves when its transfer over host ends", 9, 11),
        (f"waits for the fetch of {a} over host", 20, 27),
    ]


def test_an_arrow_goes_from_the_copy_to_its_fetch_to_the_op_that_needs_it() -> None:
    events = trace_of(*PUBLISHED)
    flow = [event for event in events if event.get("cat") == "flow"]
    assert [(event["ph"], event["ts"]) for event in flow] == [("s", 0.004), ("t", 0.02), ("f", 0.027)]
    assert len({(event["id"], event["name"]) for event in flow}) == 1
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [threads[event["tid"]] for event in flow] == ["host out", "host in", "compute"]


def test_every_place_has_a_counter() -> None:
    counters = [event for event in trace_of(*PUBLISHED) if event["ph"] == "C"]
    for place, peak in (("cpu", 13), ("host", 6)):
        own = [event for event in counters if event["name"] == f"Memory of {place} (bytes)"]
        assert max(level for event in own for level in event["args"].values()) == peak


def test_the_steps_are_data_with_their_bytes_and_waits() -> None:
    table = section(played(*PUBLISHED)).table("steps")
    assert table["storage"] == (None, None, 0, None, None, 0, None)
    assert table["size_bytes"] == (None, None, 6, None, None, 6, None)
    assert [bool(text) for text in table["waited"]] == [False, False, False, True, False, False, True]


def test_recomputation_and_plans_without_stalls_have_a_trace_too() -> None:
    again = (Compute(0), Compute(1), Evict(0), Compute(2), Compute(3), Compute(0), Compute(4))
    events = slices(trace_of(*again, Offload(4, "host"), Fetch(4, "host")))
    assert len(events["compute"]) == 6
    assert events["stalls"] == []
