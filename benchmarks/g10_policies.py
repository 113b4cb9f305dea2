"""G10's policies on its kernel traces, beside our plan on the same machine, and beside what was published.

    python benchmarks/g10_policies.py [--write] [--limit SECONDS] [TRACE ...]

The machine is that of G10's authors: 40 GiB on the device, 128 GB at the host behind a wire of 15.754 GB/s, a drive of
3.2 GB/s on that wire. *published* is the time that the original prints for the same run, where it is known. G10-GDS and
G10-Host are played with four times the device memory there (*compat*), as the original plays them, and as they are in
the tables by memory. With `--write` the figures are drawn too, in the shape of those of the article: ideal time by time
(its figure 11), where the time goes (12), traffic (14), batch sizes (15), host memory (16, 17), rate of the drive (18),
error of durations with the plan fixed (19).
"""

from __future__ import annotations

import json
import random
from typing import Any

import g10_figures
import harness
import msgspec

from tensortide.importers.g10.profile import profile_of
from tensortide.importers.g10.read import read_trace
from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.replays.g10 import POLICIES, Machine, Outcome, Trace, trace_of
from tensortide.replays.g10.machine import GIB
from tensortide.studies.planning.policies import OURS, Compared, compare_policies

TRACES = ("BERT_Base-128", "BERT_Base-256", "Inceptionv3-512", "VIT-512")
SIZES = (40, 32, 24, 16)
HOST_GB = (0, 8, 16, 32, 64, 96, 128, 256)
DRIVE_GB_S = (3.2, 4.8, 6.4, 9.6, 12.8, 19.2, 25.6, 32.0)
ERRORS = (0, 5, 10, 15, 20, 25)
KEYS = {"UVM-LRU": "uvm-lru", "DeepUM+": "deepum", "FlashNeuron": "flashneuron", "G10": "g10"} | {
    "G10-GDS": "g10-gds",
    "G10-Host": "g10-host",
}
TIMEOUT_S = 3_000
NAMES = (*POLICIES, OURS)


def step(name: str) -> tuple[Recording, Trace]:
    """The trace called ``name``, for planners and for policies."""
    folder = harness.reference() / "g10" / name
    found, profile = read_trace(folder), profile_of(folder)
    assert found.times is not None
    ns = found.times.durations(found.graph, "trace").ns
    absent = {"outputs_absent_ns": profile.outputs_absent_ns, "all_absent_ns": profile.all_absent_ns}
    return recorded(found.graph, ns, "trace"), trace_of(found.graph, ns, **absent)


def published(name: str) -> dict[str, int]:
    """Nanoseconds by policy."""
    rows = json.loads((harness.reference() / "g10" / "results.json").read_text())
    return {KEYS[row["policy"]]: row["reported_cycles"] * 5 // 6 for row in rows if row["workload"] == name}


def row_of(outcome: Outcome, **more: Any) -> dict[str, Any]:
    facts = msgspec.to_builtins(outcome)
    over = None if outcome.of_ideal is None else outcome.of_ideal
    times = {name: getattr(outcome, name) for name in ("stall_ns", "compute_ns")}
    return {**more, **facts, **times, "ratio": over, "s": None if outcome.time_ns is None else outcome.time_ns / 1e9}


def replayed(name: str) -> list[dict[str, Any]]:
    """Each policy on the machine of its authors, tensor-granular ones as the original plays them."""
    _, trace = step(name)
    told = published(name)
    rows = []
    for policy, row in POLICIES.items():
        outcome = row.play(trace, Machine(), compat=True)
        known = told.get(policy, trace.ideal_ns if policy == "ideal" else None)
        off = None if known is None or outcome.time_ns is None else 100 * (outcome.time_ns / known - 1)
        rows.append(row_of(outcome, trace=name, published=None if known is None else known / 1e9, off=off))
    return rows


def by_memory(name: str, gib: int, limit_s: float) -> list[dict[str, Any]]:
    """Each policy as it is, and ours."""
    recording, trace = step(name)
    found = compare_policies(recording, trace, Machine(gib * GIB), tuple(POLICIES), time_limit_s=limit_s)
    return [row_of(one, trace=name, gib=gib, way=_way(found, one)) for one in found.outcomes]


def _way(found: Compared, one: Outcome) -> str:
    return "" if one.policy != OURS or found.planned is None else f"{found.way}: {found.planned.source}"


def sweep(name: str, gib: int, what: str, values: list[float], limit_s: float) -> list[dict[str, Any]]:
    """Policies and ours at each value of host memory or of the rate of the drive; each plan of ours is known to the
    next."""
    recording, trace = step(name)
    rows, known = [], {}
    for value in values:
        size = gib * GIB
        if what == "host":
            machine = Machine(size, host_bytes=int(value * 10**9))
        else:
            machine = Machine(size, wire=32 * 10**9, drive=int(value * 10**9))
        found = compare_policies(recording, trace, machine, tuple(POLICIES), time_limit_s=limit_s, known=known)
        if found.planned is not None and found.planned.plan is not None:
            known = {f"the plan for {value:g}": found.planned.plan}
        rows += [row_of(one, trace=name, gib=gib, what=what, value=value) for one in found.outcomes]
    return rows


def errors(name: str, gib: int, limit_s: float) -> list[dict[str, Any]]:
    """Ours with the plan fixed and every duration wrong by a normal error of so many percent."""
    recording, trace = step(name)
    found = compare_policies(recording, trace, Machine(gib * GIB), (), time_limit_s=limit_s)
    rows = []
    if found.planned is None or found.planned.plan is None:
        return rows
    draw = random.Random(0)
    errors_ = [draw.gauss(0, 1) for _ in recording.durations_ns]
    for percent in ERRORS:
        pairs = zip(recording.durations_ns, errors_, strict=True)
        ns = [max(0, round(time * (1 + percent / 100 * error))) for time, error in pairs]
        problem = instance(recording.graph, found.planned.device, ns, links=found.links)
        plan = found.planned.plan
        played = play(problem, plan.lanes[0].steps, home=plan.home, budget_bytes=gib * GIB)
        ratio = played.base_ns / played.makespan_ns
        rows.append({"trace": name, "gib": gib, "percent": percent, "policy": OURS, "ratio": ratio})
    return rows


def measure(run: harness.Run) -> None:
    columns = {"trace": "{trace}", "policy": "{policy}", "s": "{s:.3f}", "published s": "{published:.3f}"}
    first = run.table({**columns, "off %": "{off:+.2f}", "ideal / time": "{ratio:.4f}"}, ("trace", "policy"))
    cases = run.cases({name: name for name in TRACES if (harness.reference() / "g10" / name / "profile").is_dir()})
    for name in cases:
        for row in run.child(replayed, name, timeout_s=TIMEOUT_S):
            first.add(row)
    columns = {
        "trace": "{trace}",
        "GiB": "{gib:d}",
        "policy": "{policy}",
        "s": "{s:.3f}",
        "ideal / time": "{ratio:.4f}",
    }
    memory = run.table({**columns, "way": "{way}"}, ("trace", "gib", "policy"), "By device memory")
    for name in cases:
        for gib in SIZES[:1] if run.smallest else SIZES:
            for row in run.child(by_memory, name, gib, run.options.limit, timeout_s=TIMEOUT_S):
                memory.add(row)
    if not run.smallest:
        _sweeps(run, list(cases))
    if run.options.write:
        g10_figures.draw(json.loads(run.file.read_text())["tables"], harness.RESULTS)


def _sweeps(run: harness.Run, cases: list[str]) -> None:
    columns = {
        "trace": "{trace}",
        "GiB": "{gib:d}",
        "policy": "{policy}",
        "s": "{s:.3f}",
        "ideal / time": "{ratio:.4f}",
    }
    name = "BERT_Base-256"
    if name not in cases:
        return
    table = run.table(
        {"what": "{what}", "value": "{value:g}", **columns}, ("what", "value", "trace", "policy"), "Sweeps"
    )
    for what, values in (("host", HOST_GB), ("drive", DRIVE_GB_S)):
        for row in run.child(sweep, name, 40, what, list(values), run.options.limit, timeout_s=TIMEOUT_S):
            table.add(row)
    error = run.table({"error %": "{percent:d}", **columns}, ("percent", "trace", "policy"), "Error of durations")
    for row in run.child(errors, name, 40, run.options.limit, timeout_s=TIMEOUT_S):
        error.add(row)


if __name__ == "__main__":
    harness.main(__doc__, measure, limit={"type": float, "default": 60.0, "help": "seconds for each plan of ours"})
