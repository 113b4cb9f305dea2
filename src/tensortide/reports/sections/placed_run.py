"""Section ``placed_run``: a placed Plan that ran here: losses, bytes and times of each device, beside the predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Column, Fact, Note, Section, Table, data_facts
from tensortide.reports.sections.ranks_run import LAST_STEP, facts, losses_table, run_section
from tensortide.reports.sections.timeline_lanes import lanes_of

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.placements.graphs import PlacedStep
    from tensortide.run.placed.placed_run import MeasuredPlacement

__all__ = ["section"]


def section(found: PlacedStep, measured: MeasuredPlacement) -> Section:
    """Make the section."""
    from tensortide.run.placed.losses import same_bits

    verdict = Note(text=" ".join(_verdict(measured)), kind="verdict" if measured.verified else "failure")
    losses, alone = ([_mean(step) for step in each if step] for each in (measured.losses, measured.alone.losses))
    several = measured.workload.micro_batches > 1
    flags = data_facts(
        "flag",
        same_losses=measured.same_losses,
        same_state=not measured.changed,
        losses_agree=measured.agrees,
        bytes_as_planned=measured.as_planned,
    )
    shown = facts(
        measured.furthest if any(measured.losses) else None,
        steps=measured.workload.steps,
        step_ns=measured.step_ns,
        more=(*_state(measured), *flags),
    )
    pairs = zip(measured.losses, measured.alone.losses, strict=True)
    same = tuple("yes" if same_bits(a, b) else "no" for a, b in pairs if a)
    means = ["groups"] * (measured.groups.count > 1) + ["micro-batches"] * several
    remark = f"mean over {' and '.join(means)}" if means else ""
    losses_shown = losses_table(losses, alone, remark, Column("same", "bit-identical", "text", same))
    made = (losses_shown, _devices(found, measured), _links(found, measured), _exchanges(found, measured))
    tables = [table for table in made if len(table)]
    exchange_lanes = measured.exchange_lanes if measured.groups.beside else ()
    picture = lanes_of("measured", LAST_STEP, measured.timeline, exchange_lanes=exchange_lanes)
    return run_section("placed_run", verdict, shown, tables, picture, measured.alone.held)


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses)


def _verdict(measured: MeasuredPlacement) -> Iterator[str]:
    lanes = len(measured.lanes)
    where = f"{lanes:,} processes" if lanes > 1 else "one process by the Plan"
    steps = measured.workload.steps
    of_steps = f"{steps:,} steps" if steps > 1 else "1 step"
    states = len(measured.alone.state)
    if not any(measured.losses):
        yield "The step returns no loss."
    elif measured.same_losses:
        yield f"Losses of {of_steps} in {where} are bit-identical to those of one process{_in_order(measured)}."
    else:
        yield _differ(measured, of_steps, where)
    changed = measured.changed
    if changed:
        named = ", ".join(changed[:3]) + ", ..." * (len(changed) > 3)
        if measured.parts is not None:
            named = _most_apart(measured.graph, measured.alone.apart)
        yield f"{len(changed):,} of {states:,} updated parameters, buffers and states differ after them: {named}."
    elif states:
        all_of = "The" if not any(measured.losses) else "So are the"
        rest = " are bit-identical to those of one process" if not any(measured.losses) else ""
        yield f"{all_of} {states:,} parameters, buffers and optimizer states that a step updates{rest}."
    yield "Bytes sent are those of the Plan." if measured.as_planned else "Bytes sent are not those of the Plan."


def _in_order(measured: MeasuredPlacement) -> str:
    """Say which one process several groups are compared with."""
    return " that averages gradients over the groups in ascending order" if measured.groups.count > 1 else ""


def _differ(measured: MeasuredPlacement, of_steps: str, where: str) -> str:
    """Say how losses differ that are not bit-identical to those of one process."""
    from tensortide.run.placed.losses import same_bits

    parts = measured.parts
    if parts is not None and measured.agrees:
        return (
            f"Losses of {of_steps} in {where} are those of one process within {parts.tolerance:g}: they differ by up "
            f"to {measured.furthest:.1e}, as partial results of shards are added in another order."
        )
    if parts is not None:
        return (
            f"Losses in {where} are not those of one process: they differ by up to {measured.furthest:.1e}, more than "
            f"the {parts.tolerance:g} of sums in another order."
        )
    pairs = enumerate(zip(measured.losses, measured.alone.losses, strict=True), 1)
    first = next(step for step, (a, b) in pairs if not same_bits(a, b))
    return f"Losses in {where} are not those of one process: they differ from step {first} on."


def _most_apart(graph: Graph, apart: Mapping[int, float]) -> str:
    """Name what differs most, by how much of its norm."""
    if not apart:
        return "in signs of zeros"
    storage = max(apart, key=apart.__getitem__)
    return f"{graph.storages[storage].name} most, by {apart[storage]:.1e} of its norm"


def _state(measured: MeasuredPlacement) -> Iterator[Fact]:
    states = len(measured.alone.state)
    yield Fact(
        "same_states",
        "Bit-identical parameters, buffers and states",
        states - len(measured.changed),
        "count",
        f"of {states:,} that a step updates",
    )


def _devices(found: PlacedStep, measured: MeasuredPlacement) -> Table:
    from tensortide.run.placed.measured import shares

    names = [lane.device for lane in measured.all_lanes.lanes]
    busy = shares(found.timeline, measured.timeline, len(names))
    planned, sent = measured.planned_bytes, measured.sent_bytes
    columns = (
        Column("rank", "Rank", "count", tuple(range(len(names)))),
        Column("device", "Device", "name", tuple(names)),
        Column("bytes", "sent", "bytes", tuple(_from(sent, rank) for rank in range(len(names)))),
        Column("planned", "by the Plan", "bytes", tuple(_from(planned, rank) for rank in range(len(names)))),
        Column("busy", "busy, measured", "share", tuple(ran for _, ran in busy)),
        Column("predicted", "predicted", "share", tuple(share for share, _ in busy)),
    )
    types = dict.fromkeys(device.row.name for device in found.simulated.step.cluster.devices)
    remark = f"predicted for {', '.join(types)}; shares of the step"
    return Table(key="ranks", title="What each device did", remark=remark, columns=columns)


def _exchanges(found: PlacedStep, measured: MeasuredPlacement) -> Table:
    """Show what each rank averages with the other groups, and what of that no computation hides."""
    if measured.groups.count == 1:
        return Table(key="averages", columns=())
    names, size = [lane.device for lane in measured.all_lanes.lanes], len(measured.plan.lanes)
    ranks = range(len(names))
    columns = (
        Column("rank", "Rank", "count", tuple(ranks)),
        Column("device", "Device", "name", tuple(names)),
        Column("bytes", "Gradients", "bytes", tuple(measured.exchanged)),
        Column("planned", "by the Plan", "bytes", tuple(measured.planned_exchanges)),
        Column("sent", "sent", "bytes", tuple(sum(lane.exchanged_bytes.values()) for lane in measured.lanes)),
        Column("buffers", "in buffers", "bytes", tuple(lane.buffer_bytes for lane in measured.lanes)),
        Column("exposed", "exposed, measured", "ns", tuple(measured.exposed_ns)),
        Column("predicted", "predicted", "ns", tuple(found.exposed_ns[rank % size] for rank in ranks)),
    )
    return Table(key="averages", title="Gradients averaged with the other groups", columns=columns)


def _from(bytes_of: dict[tuple[int, int], int], rank: int) -> int:
    return sum(nbytes for (source, _), nbytes in bytes_of.items() if source == rank)


def _links(found: PlacedStep, measured: MeasuredPlacement) -> Table:
    names = [lane.device for lane in measured.all_lanes.lanes]
    planned, sent = measured.planned_bytes, measured.sent_bytes
    pairs = sorted(pair for pair in {*planned, *sent} if planned.get(pair, 0) or sent.get(pair, 0))
    lanes, size = found.simulated.step.cluster.lanes, len(measured.plan.lanes)
    linked = {(lane.source, lane.target) for lane in lanes}
    columns = (
        Column("source", "From", "name", tuple(names[source] for source, _ in pairs)),
        Column("target", "To", "name", tuple(names[target] for _, target in pairs)),
        Column("bytes", "Bytes sent", "bytes", tuple(sent.get(pair, 0) for pair in pairs)),
        Column("planned", "by the Plan", "bytes", tuple(planned.get(pair, 0) for pair in pairs)),
    )
    routed = any((source % size, target % size) not in linked for source, target in pairs)
    remark = "from one process to the other, whatever devices are on the route" if routed else ""
    return Table(key="sent", title="Sent from device to device", remark=remark, columns=columns)
