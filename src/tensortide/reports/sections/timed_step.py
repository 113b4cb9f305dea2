"""Document of the times of a step: by op, on each machine, and beside what was measured; section ``played``: the step
over time, for traces: lanes of device, host and network, and bytes resident."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensortide.recorder import resolver
from tensortide.reports.blocks import AnyBlock, Column, Document, Section, Table
from tensortide.reports.pictures import Curve, Series, SpanLane, Spans
from tensortide.reports.sections import Step, difference, ops, time
from tensortide.studies.timing.request import TimedStep
from tensortide.timelines import timeline
from tensortide.timelines.data_parallel import with_exchange
from tensortide.timelines.events import Kind
from tensortide.timelines.machines import MachineStep


def document(found: TimedStep) -> Document:
    """Show the times, and the difference of those that were predicted and measured where both were asked for."""
    graph, durations = found.graph, found.durations
    made = time.document(
        *(graph, durations),
        target=found.name,
        predicted=found.predicted,
        resolver=resolver,
        depth=found.depth,
        top=found.top,
    )
    if found.against is None or durations.measurement is None:
        return made
    machine, step = found.against
    measured = timeline(graph, durations_ns=durations.ns)
    against = difference.against(step, measured, machine, durations.measurement.step)
    return msgspec.structs.replace(made, sections=(*made.sections, against))


def over_time(found: TimedStep, made: Document) -> Document:
    """Show, in place of what ``made`` shows, the step over time: as each machine plays it, or its ops in a row."""
    step = Step(found.graph, found.durations, resolver=resolver)
    if not found.predicted:
        return msgspec.structs.replace(made, sections=(ops.of_step(step), ops.schedule(step)))
    blocks: list[AnyBlock] = []
    for i, (own, one) in enumerate(zip(step.on(found.predicted), found.predicted, strict=True)):
        lanes = tuple(_lanes(own, one))
        blocks.append(Spans(key=f"machine_{i}", x_unit="ns", lanes=lanes, table=f"ops_{i}", top=0))
        blocks.append(_ops(own, one, f"ops_{i}"))
    played = Section("played", "Step", blocks=(*blocks, _resident(found.predicted[0])))
    return msgspec.structs.replace(made, sections=(played,))


def _lanes(step: Step, one: MachineStep) -> Iterator[SpanLane]:
    events, exchanged = with_exchange(one.line, one.exchange)
    for number, label in enumerate(one.line.lanes):
        own = events.lane == number
        starts, ends, ops = (tuple(of[own].tolist()) for of in (events.start_ns, events.end_ns, events.index))
        names = tuple(step.graph.calls[step.graph.ops[op].call].op for op in ops)
        yield SpanLane(label, starts, ends, names, tuple(step.phases[op] for op in ops), ops, str(one.nodes))
    if exchanged:
        starts, ends = zip(*exchanged, strict=True)
        yield SpanLane("network", starts, ends, _collectives(one), group=str(one.nodes))


def _collectives(one: MachineStep) -> tuple[str, ...]:
    """The names of what the network runs: ops of the step itself, or the all-reduces of its gradients."""
    if one.exchange.runs:
        return ("all_reduce",) * len(one.exchange.runs)
    return tuple(one.graph.calls[one.graph.ops[op - 1].call].op for op, _ in one.exchange.waits)


def _ops(step: Step, one: MachineStep, key: str) -> Table:
    """Return what the trace says of each op."""
    forecast, costs = one.durations.forecast, step.counted.costs
    rows = [] if forecast is None else [forecast.rows[row] for row in forecast.index]
    times = [row.estimate(ns) for row, ns in zip(rows, one.durations.ns, strict=True)]
    columns = (
        Column("module", "", "path", tuple(step.graph.module_path(op.module) for op in step.graph.ops)),
        Column("flops", "", "flops", tuple(None if c.cost is None else int(c.cost.flops) for c in costs)),
        Column("accessed_bytes", "", "bytes", tuple(int(c.nbytes) for c in costs)),
        Column("provenance", "", "text", tuple(str(row.provenance) for row in rows)),
        Column("low_ns", "", "ns", tuple(None if time.unknown else round(time.low_ns) for time in times)),
        Column("high_ns", "", "ns", tuple(None if time.unknown else round(time.high_ns) for time in times)),
        Column("bound", "", "text", tuple(row.bound for row in rows)),
    )
    return Table(key=key, columns=columns)


def _resident(one: MachineStep) -> Curve:
    events, _ = with_exchange(one.line, one.exchange)
    runs = events.kind == Kind.RUN
    starts, ends = events.start_ns[runs].tolist(), events.end_ns[runs].tolist()
    series = Series("resident", "resident", tuple(events.resident_bytes[runs].tolist()))
    return Curve(key="resident", title="Resident bytes", x=(*starts, ends[-1]), x_unit="ns", stack=(series,))
