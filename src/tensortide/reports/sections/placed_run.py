"""Section ``placed_run``: a placed Plan that ran here: losses, bytes and times of each device, beside the predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

import msgspec

from tensortide.reports.blocks import Facts, Note, Section, Table
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.pictures import Spans
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.shown import Show

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.run.placed.placed_run import MeasuredPlacement


class _Loss(msgspec.Struct, frozen=True):
    step: Annotated[int, Show("Step")]
    loss: Annotated[float, Show("Loss, in processes", "amount")]
    alone: Annotated[float | None, Show("in one process", "amount")]
    same: Annotated[str, Show("bit-identical")]


class _Rank(msgspec.Struct, frozen=True):
    rank: Annotated[int, Show("Rank")]
    device: Annotated[str, Show("Device", "name")]
    sent_bytes: Annotated[int, Show("sent")]
    planned_bytes: Annotated[int, Show("by the Plan")]
    busy_share: Annotated[float, Show("busy, measured")]
    predicted_share: Annotated[float, Show("predicted")]


class _Sent(msgspec.Struct, frozen=True):
    source: Annotated[str, Show("From", "name")]
    target: Annotated[str, Show("To", "name")]
    sent_bytes: Annotated[int, Show("Bytes sent")]
    planned_bytes: Annotated[int, Show("by the Plan")]


class _Averaged(msgspec.Struct, frozen=True):
    rank: Annotated[int, Show("Rank")]
    device: Annotated[str, Show("Device", "name")]
    gradients_bytes: Annotated[int, Show("Gradients")]
    planned_bytes: Annotated[int, Show("by the Plan")]
    sent_bytes: Annotated[int, Show("sent")]
    buffers_bytes: Annotated[int, Show("in buffers")]
    exposed_ns: Annotated[int, Show("exposed, measured")]
    predicted_ns: Annotated[int, Show("predicted")]


LAST_STEP = "The last step, measured on this machine"


def section(measured: MeasuredPlacement) -> Section:
    """Make the section."""
    verdict = Note(text=" ".join(_verdict(measured)), kind="verdict" if measured.verified else "failure")
    shown = facts(
        *(measured, "workload.steps", "step_ns as measured_step_ns", "loss_difference_share"),
        fact(measured, "same_states", f"of {len(measured.alone.state):,} that a step updates"),
        *("same_losses", "same_state", "agrees as losses_agree", "as_planned as bytes_as_planned"),
    )
    placed = measured.placed
    means = ["groups"] * (placed.groups.count > 1) + ["micro-batches"] * (placed.ready.problem.batches > 1)
    remark = f"mean over {' and '.join(means)}" if means else ""
    tables = (losses_table(measured.losses, measured.alone.losses, remark), *_tables(measured))
    lanes = measured.exchange_lanes if placed.groups.beside else ()
    picture = lanes_of("measured", LAST_STEP, measured.timeline, exchange_lanes=lanes)
    return run_section("placed_run", verdict, shown, [one for one in tables if len(one)], picture, measured.alone.held)


def run_section(
    key: str, verdict: Note, facts: Facts, tables: Sequence[Table], last: Spans, held: Mapping[str, tuple[float, float]]
) -> Section:
    """Make the section of a step that ran in processes of this machine: ``tables`` are the losses, what each rank did,
    and others; ``last`` is the last step, ``held`` the numbers that one process held as the ranks do: they would change
    from one step to the next."""
    notes = []
    for op, (old, new) in list(held.items())[:1]:
        more = f" (and of {len(held) - 1:,} more kinds of ops)" if len(held) > 1 else ""
        text = (
            f"The step changes its numbers from one step to the next, as by a learning-rate schedule: {op} has {old:g}"
            f", then {new:g}{more}. Every process, the single one too, repeats those of the captured step."
        )
        notes.append(Note(text=text))
    return Section(key, "Run on this machine", blocks=(verdict, *notes, facts, *tables, last))


def losses_table(ran: Sequence[Sequence[float]], alone: Sequence[Sequence[float]], remark: str) -> Table:
    """Show the mean of the losses of each step beside that of one process."""
    from tensortide.run.placed.losses import same_bits

    pairs = [(own, one) for own, one in zip_longest(ran, alone[: len(ran)], fillvalue=()) if own]
    rows = [
        _Loss(step, sum(own) / len(own), sum(one) / len(one) if one else None, "yes" if same_bits(own, one) else "no")
        for step, (own, one) in enumerate(pairs, 1)
    ]
    return table(_Loss, rows, key="losses", title="Losses", remark=remark)


def _tables(measured: MeasuredPlacement) -> Iterator[Table]:
    """List what each process did, what it sent to others, and what of gradients it averaged with other groups."""
    from tensortide.run.placed.measured import busy_shares

    found = measured.placed
    names, size = [lane.device for lane in found.all_lanes.lanes], len(found.plan.lanes)
    planned, sent = measured.planned_bytes, measured.sent_bytes
    predicted = [one.busy_ns / (found.step_ns or 1) for one in found.devices]
    busy = enumerate(zip(names, busy_shares(measured.timeline, len(names)), strict=True))
    ranks = [_Rank(i, name, _from(sent, i), _from(planned, i), ran, predicted[i % size]) for i, (name, ran) in busy]
    types = ", ".join(dict.fromkeys(device.type for device in found.devices))
    remark = f"predicted for {types}; shares of the step"
    yield table(_Rank, ranks, key="ranks", title="What each device did", remark=remark)
    pairs = sorted(pair for pair in {*planned, *sent} if planned.get(pair, 0) or sent.get(pair, 0))
    linked = {(wire.source, wire.target) for wire in found.simulated.step.cluster.wires}
    routed = any((source % size, target % size) not in linked for source, target in pairs)
    remark = "from one process to the other, whatever devices are on the route" if routed else ""
    moved = [_Sent(names[a], names[b], sent.get((a, b), 0), planned.get((a, b), 0)) for a, b in pairs]
    yield table(_Sent, moved, key="sent", title="Sent from device to device", remark=remark)
    if found.groups.count > 1:
        figures = zip(measured.lanes, measured.exchanged, measured.planned_exchanges, measured.exposed_ns, strict=True)
        own = [
            _Averaged(
                *(rank, names[rank], nbytes, by_plan, sum(lane.exchanged_bytes.values()), lane.buffer_bytes),
                *(exposed, found.averages[rank % size].exposed_ns),
            )
            for rank, (lane, nbytes, by_plan, exposed) in enumerate(figures)
        ]
        yield table(_Averaged, own, key="averages", title="Gradients averaged with the other groups")


def _from(bytes_of: Mapping[tuple[int, int], int], rank: int) -> int:
    return sum(nbytes for (source, _), nbytes in bytes_of.items() if source == rank)


def _verdict(measured: MeasuredPlacement) -> Iterator[str]:
    """Say how far losses, updated values and bytes are those of one process and of the Plan."""
    lanes, steps, states = len(measured.lanes), measured.workload.steps, len(measured.alone.state)
    where = f"{lanes:,} processes" if lanes > 1 else "one process by the Plan"
    losses = f"Losses of {steps:,} step{'s' * (steps > 1)} in {where}"
    quiet, changed = not any(measured.losses), measured.changed
    if quiet:
        yield "The step returns no loss."
    elif measured.same_losses:
        mean = " that averages gradients over the groups in ascending order" * (measured.placed.groups.count > 1)
        yield f"{losses} are bit-identical to those of one process{mean}."
    else:
        yield _differ(measured, losses, where)
    if changed:
        named = ", ".join(changed[:3]) + ", ..." * (len(changed) > 3)
        if measured.placed.ready.sharded.shards:
            named = _most_apart(measured.placed.ready.graph, measured.alone.apart)
        yield f"{len(changed):,} of {states:,} updated parameters, buffers and states differ after them: {named}."
    elif states:
        updated = f"{states:,} parameters, buffers and optimizer states that a step updates"
        yield f"The {updated} are bit-identical to those of one process." if quiet else f"So are the {updated}."
    yield "Bytes sent are those of the Plan." if measured.as_planned else "Bytes sent are not those of the Plan."


def _differ(measured: MeasuredPlacement, losses: str, where: str) -> str:
    """Say how losses differ that are not bit-identical to those of one process."""
    from tensortide.run.placed.losses import same_bits

    tolerance, most = measured.tolerance, f"they differ by up to {measured.furthest:.1e}"
    if tolerance and measured.agrees:
        why = "as partial results of shards are added in another order"
        return f"{losses} are those of one process within {tolerance:g}: {most}, {why}."
    if not tolerance:
        pairs = enumerate(zip(measured.losses, measured.alone.losses, strict=True), 1)
        most = f"they differ from step {next(step for step, (a, b) in pairs if not same_bits(a, b))} on"
    else:
        most += f", more than the {tolerance:g} of sums in another order"
    return f"Losses in {where} are not those of one process: {most}."


def _most_apart(graph: Graph, apart: Mapping[int, float]) -> str:
    """Name what differs most, by how much of its norm."""
    if not apart:
        return "in signs of zeros"
    storage = max(apart, key=apart.__getitem__)
    return f"{graph.storages[storage].name} most, by {apart[storage]:.1e} of its norm"
