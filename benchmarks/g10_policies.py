"""G10's policies on its kernel traces, beside our plan on the same machine, and beside what was published.

    python benchmarks/g10_policies.py [--write] [--limit SECONDS] [--sweeps] [TRACE ...]

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import harness
import msgspec

from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import profile_of
from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.model import Plan
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.replays.g10 import POLICIES, G10Machine, G10Outcome, Trace, trace_of
from tensortide.replays.g10.machine import GIB
from tensortide.studies.planning.g10_comparison import OURS, Compared, compare_policies

TRACES = ("BERT_Base-128", "BERT_Base-256", "Inceptionv3-512", "VIT-512")
SIZES = (40, 32, 24, 16)
HOST_GB = (0, 8, 16, 32, 64, 96, 128, 256)
DRIVE_GB_S = (3.2, 4.8, 6.4, 9.6, 12.8, 19.2, 25.6, 32.0)
ERRORS = (0, 5, 10, 15, 20, 25)
KEYS = {row.title: name for name, row in POLICIES.items()}
SWEPT = "BERT_Base-256"
TIMEOUT_S = 3_000
COLUMNS = {"trace": "{trace}", "GiB": "{gib:d}", "policy": "{policy}", "s": "{s:.3f}", "ideal / time": "{ratio:.4f}"}
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


def row_of(outcome: G10Outcome, **more: Any) -> dict[str, Any]:
    facts = msgspec.to_builtins(outcome)
    times = {name: getattr(outcome, name) for name in ("stall_ns", "compute_ns")}
    s = None if outcome.step_ns is None else outcome.step_ns / 1e9
    return {**more, **facts, **times, "ratio": outcome.of_ideal_share, "s": s}


def replayed(name: str) -> list[dict[str, Any]]:
    """Each policy on the machine of its authors, tensor-granular ones as the original plays them."""
    _, trace = step(name)
    told = published(name)
    rows = []
    for policy, row in POLICIES.items():
        outcome = row.play(trace, G10Machine(), compat=True)
        known = told.get(policy, trace.ideal_ns if policy == "ideal" else None)
        off = None if known is None or outcome.step_ns is None else 100 * (outcome.step_ns / known - 1)
        rows.append(row_of(outcome, trace=name, published=None if known is None else known / 1e9, off=off))
    return rows


def by_memory(name: str, gib: int, limit_s: float) -> list[dict[str, Any]]:
    """Each policy as it is, and ours."""
    recording, trace = step(name)
    found = compare_policies(recording, trace, G10Machine(gib * GIB), tuple(POLICIES), time_limit_s=limit_s)
    return [row_of(one, trace=name, gib=gib, way=_way(found, one)) for one in found.outcomes]


def _way(found: Compared, one: G10Outcome) -> str:
    """Where our plan comes from, and whether the clock has ended the search for a better one."""
    if one.policy != OURS or found.planned is None:
        return ""
    done = found.planned.complete or found.planned.step_ns == found.planned.base_ns
    return f"{found.way}: {found.planned.source}{'' if done else '; cut by the clock'}"


def sweep(name: str, gib: int, what: str, values: list[float], limit_s: float) -> list[dict[str, Any]]:
    """Policies and ours at each value of host memory or of the rate of the drive; each plan of ours is known to the
    next."""
    recording, trace = step(name)
    rows: Rows = []
    known: dict[str, Plan] = {}
    for value in values:
        size = gib * GIB
        if what == "host":
            machine = G10Machine(size, host_bytes=int(value * 10**9))
        else:
            machine = G10Machine(size, wire=32 * 10**9, drive=int(value * 10**9))
        found = compare_policies(recording, trace, machine, tuple(POLICIES), time_limit_s=limit_s, known=known)
        if found.planned is not None and found.planned.plan is not None:
            known = {f"the plan for {value:g}": found.planned.plan}
        rows += [row_of(one, trace=name, gib=gib, what=what, value=value) for one in found.outcomes]
    return rows


def errors(name: str, gib: int, limit_s: float) -> list[dict[str, Any]]:
    """Ours with the plan fixed and every duration wrong by a normal error of so many percent."""
    recording, trace = step(name)
    found = compare_policies(recording, trace, G10Machine(gib * GIB), (), time_limit_s=limit_s)
    rows: Rows = []
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


# -- figures ----------------------------------------------------------------------------------------

COLORS = ("#7f7f7f", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#000000")
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "")
TITLES = {**{name: row.title for name, row in POLICIES.items()}, OURS: "ours"}
Rows: TypeAlias = list[dict[str, Any]]


def draw(tables: dict[str, Rows], folder: Path) -> None:
    """Draw the recorded ``tables`` to PNG files in ``folder``."""
    memory = tables.get("By device memory", [])
    at_40 = [row for row in memory if row["gib"] == 40]
    if at_40:
        _grouped(at_40, "ratio", "ideal time / time", folder / "g10_policies_ideal.png")
        _stacked(at_40, folder / "g10_policies_breakdown.png")
        _traffic(at_40, folder / "g10_policies_traffic.png")
        _batches(at_40, folder / "g10_policies_batches.png")
        _lines(_by(memory, "gib", "BERT_Base-256"), "device memory, GiB", folder / "g10_policies_memory.png")
    sweeps = tables.get("Sweeps", [])
    for what, label in (("host", "host memory, GB"), ("drive", "rate of the drive, GB/s")):
        rows = [{**row, "at": row["value"]} for row in sweeps if row["what"] == what]
        if rows:
            _lines(rows, label, folder / f"g10_policies_{what}.png")
    errors = [{**row, "at": row["percent"]} for row in tables.get("Error of durations", [])]
    if errors:
        _lines(errors, "error of durations, %", folder / "g10_policies_error.png", bottom=0.9)


def _axes(width: float = 9.0) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(width, 3.6), layout="constrained")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#dddddd", lw=0.6)
    axis.set_axisbelow(True)
    return figure, axis


def _finish(figure: Any, axis: Any, path: Path) -> None:
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=130)


def _by(rows: Rows, key: str, trace: str) -> Rows:
    return [{**row, "at": row[key]} for row in rows if row["trace"] == trace]


def _find(rows: Rows, **wanted: object) -> dict[str, Any]:
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), {})


def _traces(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["trace"] for row in rows))


def _grouped(rows: Rows, key: str, label: str, path: Path) -> None:
    figure, axis = _axes()
    traces = _traces(rows)
    for number, policy in enumerate(NAMES):
        values = [_find(rows, trace=trace, policy=policy).get(key) or 0 for trace in traces]
        at = [x + (number - 3.5) * 0.1 for x in range(len(traces))]
        axis.bar(at, values, 0.1, color=COLORS[number], hatch=HATCHES[number], ec="white", lw=0.3, label=TITLES[policy])
    axis.set_xticks(range(len(traces)), traces)
    axis.set_ylabel(label)
    _finish(figure, axis, path)


def _stacked(rows: Rows, path: Path) -> None:
    parts = (
        ("stall", "stall_ns", "#d55e00"),
        ("overlap", "overlap_ns", "#0072b2"),
        ("compute only", "compute_ns", "#999999"),
    )
    _stack(
        rows,
        [(label, color, lambda row, key=key: _share(row, key)) for label, key, color in parts],
        "part of the step",
        path,
    )


def _share(row: dict[str, Any], key: str) -> float:
    return (row.get(key) or 0) / row["step_ns"] if row.get("step_ns") else 0.0


def _traffic(rows: Rows, path: Path) -> None:
    ways = (
        ("host to device", "host_in", "#0072b2"),
        ("device to host", "host_out", "#56b4e9"),
        ("drive to device", "ssd_in", "#d55e00"),
        ("device to drive", "ssd_out", "#e69f00"),
    )
    parts = [(label, color, lambda row, key=key: _gib(row, key)) for label, key, color in ways]
    _stack(rows, parts, "GiB in a step", path)


def _gib(row: dict[str, Any], key: str) -> float:
    return row["traffic"].get(key, 0) / 2**30 if row.get("traffic") else 0.0


def _stack(rows: Rows, parts: Sequence[tuple[str, str, Any]], label: str, path: Path) -> None:
    figure, axis = _axes(11.0)
    places, names = [], []
    for group, trace in enumerate(_traces(rows)):
        for number, policy in enumerate(NAMES):
            row, at, bottom = _find(rows, trace=trace, policy=policy), group * 9.5 + number, 0.0
            for name, color, value in parts:
                height = value(row) if row else 0.0
                axis.bar(at, height, 0.8, bottom=bottom, color=color, label=name if not group and not number else None)
                bottom += height
            places.append(at)
            names.append(TITLES[policy])
        axis.text(group * 9.5 + 3.5, 1.02, trace, ha="center", transform=axis.get_xaxis_transform())
    axis.set_xticks(places, names, rotation=90, fontsize=7)
    axis.set_ylabel(label)
    _finish(figure, axis, path)


def _batches(rows: Rows, path: Path) -> None:
    """Samples per second over the batch sizes that there are traces of."""
    figure, axis = _axes()
    models: dict[str, list[int]] = {}
    for trace in _traces(rows):
        model, _, batch = trace.rpartition("-")
        models.setdefault(model, []).append(int(batch))
    for number, policy in enumerate(NAMES):
        for model, sizes in models.items():
            found = [_find(rows, trace=f"{model}-{batch}", policy=policy).get("s") for batch in sizes]
            rates = [batch / s if s else None for batch, s in zip(sizes, found, strict=True)]
            label = TITLES[policy] if model == next(iter(models)) else None
            axis.plot(sizes, rates, color=COLORS[number], marker="osv^D*Px"[number], label=label, alpha=0.85)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(f"batch size ({', '.join(models)})")
    axis.set_ylabel("samples per second")
    _finish(figure, axis, path)


def _lines(rows: Rows, label: str, path: Path, bottom: float = 0.0) -> None:
    figure, axis = _axes()
    for number, policy in enumerate(NAMES):
        mine = sorted((row for row in rows if row["policy"] == policy), key=_at)
        if mine:
            x, y = [row["at"] for row in mine], [row["ratio"] or 0 for row in mine]
            axis.plot(x, y, color=COLORS[number], marker="osv^D*Px"[number], label=TITLES[policy], alpha=0.85)
    axis.set_ylim(bottom, 1.05)
    axis.set_xlabel(label)
    axis.set_ylabel("ideal time / time")
    _finish(figure, axis, path)


def _at(row: dict[str, Any]) -> float:
    return float(row["at"])


# -- runs -------------------------------------------------------------------------------------------


def measure(run: harness.Run) -> None:
    columns = {"trace": "{trace}", "policy": "{policy}", "s": "{s:.3f}", "published s": "{published:.3f}"}
    first = run.table({**columns, "off %": "{off:+.2f}", "ideal / time": "{ratio:.4f}"}, ("trace", "policy"))
    memory = run.table({**COLUMNS, "way": "{way}"}, ("trace", "gib", "policy"), "By device memory")
    swept = run.table(
        {"what": "{what}", "value": "{value:g}", **COLUMNS}, ("what", "value", "trace", "policy"), "Sweeps"
    )
    error = run.table({"error %": "{percent:d}", **COLUMNS}, ("percent", "trace", "policy"), "Error of durations")
    cases = run.cases({name: name for name in TRACES if (harness.reference() / "g10" / name / "profile").is_dir()})
    limit_s = 1.0 if run.smallest else run.options.limit
    for name in () if run.options.sweeps else cases:
        _add(first, run.child(replayed, name, timeout_s=TIMEOUT_S))
        for gib in SIZES[:1] if run.smallest else SIZES:
            _add(memory, run.child(by_memory, name, gib, limit_s, timeout_s=TIMEOUT_S))
    if SWEPT in cases and not run.smallest:
        for what, values in (("host", HOST_GB), ("drive", DRIVE_GB_S)):
            _add(swept, run.child(sweep, SWEPT, 40, what, list(values), run.options.limit, timeout_s=TIMEOUT_S))
        _add(error, run.child(errors, SWEPT, 40, run.options.limit, timeout_s=TIMEOUT_S))
    if run.options.write:
        draw(json.loads(run.file.read_text())["tables"], harness.RESULTS)


def _add(table: harness.Table, rows: Rows) -> None:
    for row in rows:
        table.add(row)


if __name__ == "__main__":
    harness.main(
        __doc__,
        measure,
        limit={"type": float, "default": 60.0, "help": "seconds for each plan of ours"},
        sweeps={"action": "store_true", "help": "the sweeps alone"},
    )
