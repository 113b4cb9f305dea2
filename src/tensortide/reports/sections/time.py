"""Section ``time``: measured durations by phase, op and module, what they leave unexplained, and rates reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tensortide.cost import Resolver
from tensortide.cost.coverage import shapes_of, shown
from tensortide.graph.model import Graph
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value
from tensortide.reports.sections import Step, machines
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.predicted_times import ends_ns, prediction_text
from tensortide.reports.sections.time_tables import Kind, Timed, kinds_table, modules_table
from tensortide.timelines.machines import MachineStep
from tensortide.timing import Durations, Measurement, Platform
from tensortide.timing.estimates import Bound
from tensortide.timing.totals import by_bound, total, unpredicted_ns
from tensortide.units import format_percent, format_seconds

__all__ = ["ORDER", "document", "of_step", "section"]

ORDER = 60

WITHIN = 0.05
"""Part of the step by which ops and overhead may miss it before that is remarked on."""
UNKNOWN = 20
"""Most kinds of op that are named as not measured."""

_HOW = {
    "step": "each op on the clock in the running step",
    "isolated": "each distinct op executed alone on random tensors",
    "trace": "with the times of a trace",
    "list": "from a list of times",
}
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
    how = found.how if found else ""
    lines = [f"{len(graph):,} ops, {_HOW.get(how, durations.source)}{_warm_up(found)}"]
    if found and found.machine:
        lines.append(_machine(found.machine))
    if how in ("trace", "list"):
        lines.append(durations.source)
    step = Step(graph, durations, resolver=resolver, top=top, depth=depth)
    if len(predicted) > 1:
        lines[0] = f"{_range(len(one.graph) for one in predicted)} ops, predicted for {len(predicted)} machines"
    alone = () if len(predicted) > 1 else (section(step, durations),)
    compared = (machines.section(step, predicted),) if predicted else ()
    return Document(title=target, subtitle=tuple(lines), sections=(*compared, *alone))


def _range(counts: Iterable[int]) -> str:
    """One number, or the least and the most."""
    ends = sorted(set(counts))
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def of_step(step: Step) -> Section | None:
    """Make the section where durations were measured."""
    durations = step.durations
    return section(step, durations) if durations is not None and durations.measurement is not None else None


def section(step: Step, durations: Durations) -> Section:
    """Make the section of ``durations``, which are those of the ops of ``step``."""
    graph, found, phases = step.graph, durations.measurement, step.phases
    ops = _timed(step, durations)
    blocks: list[AnyBlock] = [*_explained(durations, [op.calls for op in ops], sum(op.total_ns for op in ops))]
    blocks.append(kinds_table("phases", "By phase", "Phase", ops, lambda i: (phases[i], "", ""), None, durations))
    blocks.append(
        kinds_table("ops", "By op", "Op", ops, lambda i: (shown(graph[i].name), "", phases[i]), step.top, durations)
    )

    def of_shapes(i: int) -> Kind:
        return shown(graph[i].name), shapes_of(graph[i]), phases[i]

    blocks.append(kinds_table("shapes", "By op and operands", "Op", ops, of_shapes, step.top, durations))
    blocks.append(modules_table(graph, ops, step.depth, durations))
    blocks += machines.unknown([step])
    if found is not None:
        blocks += [*_unknown(graph, found), *(Note(text=text) for text in found.notes)]
    blocks += brief(graph)
    return Section("time", "Time by op", blocks=tuple(blocks))


def _timed(step: Step, durations: Durations) -> list[Timed]:
    found, ns = durations.measurement, durations.ns
    mins = found.min_ns if found and found.min_ns else ns
    p90s = found.p90_ns if found and found.p90_ns else ns
    calls = (int(step.graph.trips(op)) for op in range(len(ns)))
    known = (not found or op not in found.stand_ins for op in range(len(ns)))
    flops = (None if one.cost is None else int(one.cost.flops) for one in step.counted.costs)
    accessed = (int(one.nbytes) for one in step.counted.costs)
    columns = (range(len(ns)), calls, ns, mins, p90s, known, flops, accessed)
    return [Timed(*row) for row in zip(*columns, strict=True)]


# -- the whole step ---------------------------------------------------------------------------------


def _explained(durations: Durations, calls: Sequence[int], ops_ns: int) -> Iterator[AnyBlock]:
    """Show what the step is made of, and how far that explains it."""
    found = durations.measurement
    if found is None:
        source = Fact("source", "Source", durations.source, data=True)
        yield Facts(rows=(*_forecast(durations, calls, ops_ns), source))
        return
    explained = ops_ns + sum(found.overhead_ns.values())
    step, hooked = found.step, found.hooked
    whole = step.median_ns if step else explained
    noise = sum(found.min_ns) / sum(durations.ns) if any(durations.ns) and not found.stand_ins else None
    sign = "~" * bool(found.stand_ins)
    rows = [Fact("op_sum", "Op sum", ops_ns, "ns", format_percent(ops_ns, whole), before=sign)]
    if noise is not None:
        rows.append(Fact("shortest", "shortest times", noise, "share", "of that: how little they scatter", level=1))
    for phase, ns in found.overhead_ns.items():
        remark = f"{format_percent(ns, whole)}, the host's own work"
        rows.append(Fact(f"overhead_{phase}", f"Between ops, {phase}", ns, "ns", remark))
    if found.overhead_ns:
        rows.append(Fact("explained", "Together", explained, "ns", format_percent(explained, whole), before=sign))
    if step is not None:
        name = "Step in the trace" if found.how == "trace" else "Ordinary step"
        remark = f"{_time(step.min_ns)} to {_time(step.p90_ns)} in {step.n}"
        rows.append(Fact("step", name, step.median_ns, "ns", remark))
        rows += [Fact(f"step_{key}", "", getattr(step, f"{key}_ns"), "ns", data=True) for key in ("min", "p90")]
        rows.append(Fact("steps", "", step.n, "count", data=True))
    missed = explained / step.median_ns - 1 if step and step.median_ns > 0 and found.overhead_ns else None
    if missed is not None:
        rows.append(Fact("difference", "Difference", missed, "change"))
    if hooked is not None and found.hook_ns is not None:
        remark = f"{format_percent(found.hook_ns, whole)}, what timing the ops adds to a step"
        rows.append(Fact("hook", "Taken off: the hook", found.hook_ns, "ns", remark))
        rows.append(Fact("hooked_step", "", hooked.median_ns, "ns", data=True))
    yield Facts(rows=(*rows, *_conditions(durations, found)))
    if missed is not None and abs(missed) > WITHIN:
        yield Note(text=_unexplained(found), kind="warning")


BOUNDS: tuple[tuple[Bound, str], ...] = (
    ("compute", "arithmetic"),
    ("memory", "bytes"),
    ("launch", "launches"),
    ("host", "views"),
)


def _forecast(durations: Durations, calls: Sequence[int], ops_ns: int) -> Iterator[Fact]:
    """Show the time of predicted ops with its interval, what bounds them, and what the prediction rests on."""
    forecast = durations.forecast
    if forecast is None:
        yield Fact("op_sum", "Op sum", ops_ns, "ns", before="~" * bool(durations.unknown))
        return
    whole = total(durations, range(len(durations)), calls)
    bounds = by_bound(durations, range(len(durations)), calls)
    missing = unpredicted_ns(durations, range(len(durations)), calls)
    low, high = ends_ns(whole, missing)
    yield Fact("op_sum", "Op sum", ops_ns, "ns", prediction_text(whole, missing), before="~" * bool(whole.unknown))
    if whole.unknown:
        how = f"{whole.unknown:,} ops count with the time of their bytes, without an interval"
        yield Fact("unknown", "of unknown time", missing, "ns", how, level=1)
    yield Fact("low", "", low, "ns", data=True)
    yield Fact("high", "", high, "ns", data=True)
    for bound, name in BOUNDS:
        if ns := bounds.get(bound):
            share = format_percent(ns, ops_ns)
            yield Fact(f"bound_{bound}", f"bound by {name}", ns, "ns", share, level=1)
    for provenance, time in sorted(whole.by_provenance_ns.items()):
        yield Fact(f"provenance_{provenance.name.lower()}", "", round(time), "ns", data=True)


def _conditions(durations: Durations, found: Measurement) -> Iterator[Fact]:
    """Name the conditions of a measurement, as data."""
    machine = msgspec.to_builtins(found.machine) if found.machine else {}
    versions = {f"version_{name}": version for name, version in machine.pop("versions", {}).items()}
    values: dict[str, Value] = {"how": found.how, "clock": found.clock, "source": durations.source}
    values |= {"warm_up": found.warm_up, "steady": found.steady, **{f"machine_{k}": v for k, v in machine.items()}}
    for key, value in (values | versions).items():
        yield Fact(key, "", value, "flag" if isinstance(value, bool) else "text", data=True)


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


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


def _unexplained(found: Measurement) -> str:
    text = "Ops and the work between them do not explain the step to 5 %: "
    machine = found.machine
    load = max(machine.load_before or 0, machine.load_after or 0) if machine else 0
    if found.clock == "wall" and machine and machine.cores and load > machine.cores:
        return text + "other processes take the cores. Measure again when it is quiet, or with --clock thread."
    return text + "times changed while they were taken. Take more steps (--steps)."


def _unknown(graph: Graph, found: Measurement) -> Iterator[Table]:
    """Name the ops that were not measured, and why."""
    reasons = Counter(f"{shown(graph[index].name)}: {reason}" for index, reason in found.stand_ins.items())
    if not reasons:
        return
    texts, numbers = zip(*reasons.most_common(), strict=True)
    columns = (Column("count", "Ops", "count", numbers), Column("reason", "What and why", "text", texts, fold=True))
    title, rest = f"Not measured: {reasons.total():,} of {len(graph):,} ops", f"and {len(texts) - UNKNOWN} kinds more"
    remark = "~ estimated from the best rates of the others"
    yield Table(key="unknown", title=title, remark=remark, columns=columns, top=UNKNOWN, rest=f"{rest}: see --json")
