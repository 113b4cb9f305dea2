"""Section ``time``: measured durations by phase, op and module, what they leave unexplained, and rates reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from tensortide.cost import Resolver
from tensortide.cost.coverage import shown
from tensortide.graph.model import Graph
from tensortide.reports.blocks import AnyBlock, Document, Fact, Note, Section, Table
from tensortide.reports.of_records import fact, facts, fields, table
from tensortide.reports.sections import Step, machines
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.predicted_times import ends_ns, legend, prediction_text
from tensortide.reports.sections.time_tables import tables
from tensortide.shown import Show
from tensortide.timelines.machines import MachineStep
from tensortide.timing import Durations, Measurement, Platform
from tensortide.timing.estimates import Bound
from tensortide.timing.totals import by_bound, total, unpredicted_ns
from tensortide.units import format_percent, format_seconds

ORDER = 60

WITHIN = 0.05
"""Part of the step by which ops and overhead may miss it before that is remarked on."""
UNKNOWN = 20
"""Most kinds of op that are named as not measured."""
_UNEXPLAINED = "Ops and the work between them do not explain the step to 5 %: "
_DISTURBED = "other processes take the cores. Measure again when it is quiet, or with --clock thread."
_CHANGED = "times changed while they were taken. Take more steps (--steps)."

_CONDITIONS = (
    *("step.min_ns as step_min_ns", "step.p90_ns as step_p90_ns", "step.n as steps"),
    *("hooked.median_ns as hooked_step_ns", "how", "clock", "warm_up", "steady"),
)
_HOW = {
    "step": "each op on the clock in the running step",
    "isolated": "each distinct op executed alone on random tensors",
    "trace": "with the times of a trace",
    "list": "from a list of times",
}
_BOUNDS: dict[Bound, str] = {"compute": "arithmetic", "memory": "bytes", "launch": "launches", "views": "views"}
_CLOCK = {"wall": ", wall time", "thread": ", processor time of the thread", "kernel": ", kernel times"}


def document(
    graph: Graph,
    durations: Durations,
    *,
    target: str,
    predicted: Sequence[MachineStep] = (),
    resolver: Resolver | None = None,
    depth: int = 3,
    top: int = 15,
) -> Document:
    """Show ``durations`` of the ops of ``graph``. An op in a loop counts as often as it runs.

    The step ``predicted`` on machines stands before; where they are several, without the ops of the first alone.
    """
    found = durations.measurement
    how, several = found.how if found else "", len(predicted) > 1
    lines = [f"{len(graph):,} ops, {_HOW.get(how, durations.source)}{_warm_up(found)}"]
    if several:
        counts = sorted(len(one.graph) for one in predicted)
        ends = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
        lines[0] = f"{ends} ops, predicted for {len(predicted)} machines"
    if found and found.machine:
        lines.append(_machine(found.machine))
    if how in ("trace", "list"):
        lines.append(durations.source)
    step = Step(graph, durations, resolver=resolver, top=top, depth=depth)
    compared = [machines.section(step, predicted)] if predicted else []
    alone = [] if several else [section(step, durations)]
    return Document(title=target, subtitle=tuple(lines), sections=(*compared, *alone))


def of_step(step: Step) -> Section | None:
    """Make the section where durations were measured."""
    durations = step.durations
    return section(step, durations) if durations is not None and durations.measurement is not None else None


def section(step: Step, durations: Durations) -> Section:
    """Make the section of ``durations``, which are those of the ops of ``step``."""
    found, calls = durations.measurement, [op.trips for op in step.graph]
    times_ns = [ns * times for ns, times in zip(durations.ns, calls, strict=True)]
    blocks: list[AnyBlock] = [*tables(step, durations, times_ns), *machines.unknown([step])]
    if found is None:
        blocks[:0] = _predicted(durations, calls, sum(times_ns))
    else:
        blocks = [*_measured(durations, found, sum(times_ns)), *blocks, *_unknown(step.graph, found)]
        blocks += [Note(text=text) for text in found.notes]
    return Section("time", "Time by op", blocks=(*blocks, *brief(step.graph)))


# -- the whole step ---------------------------------------------------------------------------------


class _Whole(msgspec.Struct, frozen=True):
    """The ops of a step, and how far they and the host's work between them explain the measured step; of predicted ones
    the ends of the 80 % interval, and the part that no interval is known of."""

    op_sum_ns: Annotated[int, Show("Sum of op times", before="guessed")]
    guessed: str
    shortest_share: Annotated[float | None, Show("fastest runs", level=1, if_any=True)] = None
    explained_ns: Annotated[int | None, Show("Ops and host together", before="guessed", if_any=True)] = None
    difference_change: Annotated[float | None, Show("Off by")] = None
    unknown_ns: Annotated[int, Show("of unknown time", level=1, if_any=True)] = 0
    low_ns: int = 0
    high_ns: int | None = None


def _measured(durations: Durations, found: Measurement, op_sum_ns: int) -> Iterator[AnyBlock]:
    """Show what the step is made of, how far that explains it, and the conditions of the measurement."""
    explained_ns, step, platform = op_sum_ns + sum(found.overhead_ns.values()), found.step, found.machine
    whole_ns, known = step.median_ns if step else explained_ns, explained_ns if found.overhead_ns else None
    scatter = sum(found.min_ns) / sum(durations.ns) if any(durations.ns) and not found.stand_ins else None
    missed = explained_ns / whole_ns - 1 if step and whole_ns > 0 and known is not None else None
    whole = _Whole(op_sum_ns, "~" * bool(found.stand_ins), scatter, known, missed)
    rows = [fact(whole, "op_sum_ns", format_percent(op_sum_ns, whole_ns))]
    rows.append(fact(whole, "shortest_share", "of it: each op at its fastest; near 100 %: times hardly scatter"))
    for phase, ns in found.overhead_ns.items():
        remark = f"{format_percent(ns, whole_ns)}, the host's own work"
        rows.append(Fact(f"overhead_{phase}_ns", f"Between ops, {phase}", ns, "ns", remark))
    rows.append(fact(whole, "explained_ns", format_percent(explained_ns, whole_ns)))
    if step is not None:
        label = "Step in the trace" if found.how == "trace" else "Ordinary step"
        ends = f"{format_seconds(step.min_ns / 1e9)} to {format_seconds(step.p90_ns / 1e9)} (p90) in {step.n} steps"
        rows.append(fact(found, "step.median_ns as step_ns", ends, label=label, data=False))
    rows.append(fact(whole, "difference_change", "of the ordinary step", data=missed is None))
    hook = f"{format_percent(found.hook_ns or 0, whole_ns)}, added to each step by timing its ops"
    names = [*_CONDITIONS, *(f"machine.{name} as machine_{name}" for name in fields(Platform) if platform)]
    versions = platform.versions.items() if platform else ()
    others = [Fact(f"version_{name}", "", version, data=True) for name, version in versions]
    yield facts(found, *rows, fact(found, "hook_ns", hook), *names, *others, fact(durations, "source"))
    if missed is not None and abs(missed) > WITHIN:
        load = max(platform.load_before or 0, platform.load_after or 0) if platform else 0
        disturbed = found.clock == "wall" and platform and platform.cores and load > platform.cores
        yield Note(text=_UNEXPLAINED + (_DISTURBED if disturbed else _CHANGED), kind="warning")


def _predicted(durations: Durations, calls: Sequence[int], op_sum_ns: int) -> Iterator[AnyBlock]:
    """Show the time of predicted ops with its interval, what bounds them, and what the prediction rests on."""
    every, source = range(len(durations)), fact(durations, "source")
    if durations.forecast is None:
        yield facts(_Whole(op_sum_ns, "~" * bool(durations.unknown)), "op_sum_ns", source)
        return
    time, missing_ns = total(durations, every, calls), unpredicted_ns(durations, every, calls)
    low_ns, high_ns = ends_ns(time, missing_ns)
    whole = _Whole(op_sum_ns, "~" * bool(time.unknown), unknown_ns=missing_ns, low_ns=low_ns, high_ns=high_ns)
    how = f"{time.unknown:,} ops count with the time of their bytes, without an interval"
    rows = [fact(whole, "op_sum_ns", prediction_text(time, missing_ns)), fact(whole, "unknown_ns", how)]
    bounds = by_bound(durations, every, calls)
    for bound, name in _BOUNDS.items():
        if ns := bounds.get(bound):
            share = format_percent(ns, op_sum_ns)
            rows.append(Fact(f"bound_{bound}_ns", f"bound by {name}", ns, "ns", share, level=1))
    for kind, held_ns in sorted(time.by_provenance_ns.items()):
        rows.append(Fact(f"provenance_{kind.name.lower()}_ns", "", round(held_ns), "ns", data=True))
    yield facts(whole, *rows, "low_ns", "high_ns", source)
    yield legend([*time.by_provenance_ns, time.provenance])


def _warm_up(found: Measurement | None) -> str:
    if found is None:
        return ""
    steady = "" if found.steady else ", not steady then"
    return _CLOCK.get(found.clock, "") + (f"; {found.warm_up} steps of warm-up{steady}" if found.warm_up else "")


def _machine(machine: Platform) -> str:
    parts = [machine.name + (f" ({machine.isa})" if machine.isa else "")]
    if machine.threads is not None:
        cores = f" on {machine.cores} core{'s' * (machine.cores != 1)}" if machine.cores else ""
        parts.append(f"{machine.threads} thread{'s' * (machine.threads != 1)}{cores}")
    if machine.load_before is not None and machine.load_after is not None:
        parts.append(f"load {machine.load_before:g} before, {machine.load_after:g} after")
    if machine.governor:
        parts.append(f"governor {machine.governor}")
    return ", ".join([*parts, *(f"{name} {version}" for name, version in machine.versions.items())])


class _Reason(msgspec.Struct, frozen=True):
    """Ops that were not measured, and why."""

    count: Annotated[int, Show("Ops")]
    reason: Annotated[str, Show("What and why", fold=True)]


def _unknown(graph: Graph, found: Measurement) -> Iterator[Table]:
    """Name the ops that were not measured, and why."""
    counts = Counter(f"{shown(graph[index].name)}: {reason}" for index, reason in found.stand_ins.items())
    if counts:
        rows = [_Reason(count, reason) for reason, count in counts.most_common()]
        made = table(_Reason, rows, key="unknown", remark="~ inferred from the best rates of the others", top=UNKNOWN)
        title, rest = f"Not measured: {counts.total():,} of {len(graph):,} ops", f"and {len(rows) - UNKNOWN} kinds more"
        yield msgspec.structs.replace(made, title=title, rest=f"{rest}: see --json")
