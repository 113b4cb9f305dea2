"""Section ``scale_run``: a divided step that ran here: losses, bytes and times of each rank, beside the predicted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensortide.parallelism.pipelines import computing_ns, lanes_of_ranks
from tensortide.reports.blocks import Column, Fact, Note, Section, Table, data_facts
from tensortide.reports.sections.ranks_run import LAST_STEP, facts, losses_table, run_section
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.studies.scale import Scale

if TYPE_CHECKING:
    from tensortide.run.placed.divided import MeasuredRun

__all__ = ["section"]


def section(found: Scale, measured: MeasuredRun) -> Section:
    """Make the section."""
    from tensortide.run.placed.losses import same_bits

    line = measured.timeline
    losses, alone = measured.losses, measured.alone
    said = f"{_exchanged(measured)} {_losses(measured)}"
    verdict = Note(text=said, kind="verdict" if measured.verified else "failure")
    flags = data_facts(
        "flag",
        same_losses=same_bits(losses, alone),
        losses_agree=measured.agrees,
        bytes_as_planned=measured.as_planned,
    )
    last = Fact("last_step", "Last step, measured", line.makespan_ns, "ns")
    largest = measured.furthest if losses or alone else None
    shown = facts(largest, steps=measured.divided.steps, step_ns=measured.step_ns, more=[last, *flags])
    same = tuple("yes" if same_bits([a], [b]) else "no" for a, b in zip(losses, alone, strict=False))
    remark = "mean over micro-batches and replicas"
    losses_shown = losses_table(losses, alone, remark, Column("same", "bit-identical", "text", same))
    tables = (losses_shown, _ranks(found, measured))
    remark = "" if len(line.lanes) == len(measured.ranks) else "of each stage the rank that ended last"
    picture = lanes_of("measured", LAST_STEP, line, remark=remark, only="page")
    return run_section("scale_run", verdict, shown, tables, picture, measured.held)


def _losses(measured: MeasuredRun) -> str:
    """Say how far losses are from those of one process."""
    from tensortide.run.placed.losses import same_bits

    losses, alone, off = measured.losses, measured.alone, measured.furthest
    if not losses and not alone:
        return "The step returns no loss."
    steps = measured.divided.steps
    of_steps = f"Losses of {steps:,} steps" if steps > 1 else "The loss of 1 step"
    verb, those = ("are", "those") if steps > 1 else ("is", "that")
    if same_bits(losses, alone):
        return f"{of_steps} {verb} bit-identical to {those} of one process."
    if measured.agrees:
        most = f"the largest difference is {off:.1e} of the loss"
        return f"{of_steps} {verb} {those} of one process but for rounding: {most}."
    if math.isinf(off):
        what = "not a number" if any(map(math.isnan, [*losses, *alone])) else "0, infinite or missing"
        return f"{of_steps} {verb} not {those} of one process: a loss is {what} in one of them."
    differ = "differ" if steps > 1 else "differs"
    return (
        f"{of_steps} {differ} from {those} of one process by up to {off:.1e} of the loss, more than rounding explains "
        f"({measured.tolerance:g}). Batch normalization over micro-batches is one cause."
    )


def _exchanged(measured: MeasuredRun) -> str:
    degrees = str(measured.divided.degrees).replace("_", "-")
    said = "as their Graphs have it" if measured.as_planned else "other bytes than their Graphs have"
    return f"{measured.divided.degrees.devices:,} processes ({degrees}) exchanged {said}."


def _ranks(found: Scale, measured: MeasuredRun) -> Table:
    ranks, data = range(len(measured.ranks)), measured.divided.degrees.data
    whole = measured.timeline.makespan_ns or 1
    planned = tuple(sum(each.nbytes for each in some) for some in measured.predicted)
    columns = (
        Column("rank", "Rank", "count", tuple(ranks)),
        Column("stage", "stage", "count", tuple(rank // data + 1 for rank in ranks)),
        Column("replica", "replica", "count", tuple(rank % data + 1 for rank in ranks)),
        Column("bytes", "exchanged", "bytes", tuple(sum(e.nbytes for e in each.exchanged) for each in measured.ranks)),
        Column("planned", "by its Graph", "bytes", planned),
        Column("sent", "sent", "bytes", tuple(sum(each.sent_bytes.values()) for each in measured.ranks)),
        Column("busy", "computes, measured", "share", tuple(each.computing_ns / whole for each in measured.ranks)),
        Column("predicted", "computes, predicted", "share", tuple(_predicted(found, measured))),
    )
    remark = f"predicted for {found.problem.cluster.device.name}; shares of the step"
    return Table(key="ranks", title="What each rank did", remark=remark, columns=columns)


def _predicted(found: Scale, measured: MeasuredRun) -> list[float]:
    """Share of the predicted step in which each rank computes its passes."""
    line = found.timeline
    assert line is not None, "what runs is the best configuration"
    lanes = zip(lanes_of_ranks(measured.divided.degrees), computing_ns(line), strict=True)
    return [busy / line.makespan_ns for lane, busy in lanes for _ in lane.ranks]
