"""Section ``scale_run``: a divided step that ran here: losses, bytes and times of each rank, beside the predicted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import msgspec

from tensortide.parallelism.pipelines import computing_ns, lanes_of_ranks
from tensortide.reports.blocks import Note, Section, Table
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.sections.placed_run import LAST_STEP, losses_table, run_section
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.shown import Show
from tensortide.studies.scale import Scale

if TYPE_CHECKING:
    from tensortide.run.placed.divided import MeasuredRun


class _Rank(msgspec.Struct, frozen=True):
    rank: Annotated[int, Show("Rank")]
    stage: Annotated[int, Show("stage")]
    replica: Annotated[int, Show("replica")]
    exchanged_bytes: Annotated[int, Show("exchanged")]
    planned_bytes: Annotated[int, Show("by its Graph")]
    sent_bytes: Annotated[int, Show("sent")]
    busy_share: Annotated[float, Show("computes, measured")]
    predicted_share: Annotated[float, Show("computes, predicted")]


def section(found: Scale, measured: MeasuredRun) -> Section:
    """Make the section."""
    line = measured.timeline
    said = "as their Graphs have it" if measured.as_planned else "other bytes than their Graphs have"
    degrees = str(measured.divided.degrees).replace("_", "-")
    text = f"{len(measured.ranks):,} processes ({degrees}) exchanged {said}. {_losses(measured)}"
    verdict = Note(text=text, kind="verdict" if measured.verified else "failure")
    last = fact(measured, "timeline.makespan_ns as last_step_ns", label="Last step, measured", data=False)
    flags = ("same_losses", "agrees as losses_agree", "as_planned as bytes_as_planned")
    shown = facts(measured, "divided.steps", "step_ns as measured_step_ns", "loss_difference_share", last, *flags)
    losses, alone = ([(loss,) for loss in each] for each in (measured.losses, measured.alone))
    losses_shown = losses_table(losses, alone, "mean over micro-batches and replicas")
    tables = (losses_shown, _ranks(found, measured, line.makespan_ns or 1))
    remark = "" if len(line.lanes) == len(measured.ranks) else "of each stage the rank that ended last"
    picture = lanes_of("measured", LAST_STEP, line, remark=remark, only="page")
    return run_section("scale_run", verdict, shown, tables, picture, measured.held)


def _losses(measured: MeasuredRun) -> str:
    """Say how far losses are from those of one process."""
    losses, alone, off, steps = measured.losses, measured.alone, measured.furthest, measured.divided.steps
    if not losses and not alone:
        return "The step returns no loss."
    of_steps, are, differ = f"Losses of {steps:,} steps", "are", "differ"
    if steps == 1:
        of_steps, are, differ = "The loss of 1 step", "is", "differs"
    alone_in = f"{'those' if steps > 1 else 'that'} of one process"
    if measured.same_losses:
        return f"{of_steps} {are} bit-identical to {alone_in}."
    if measured.agrees:
        return f"{of_steps} {are} {alone_in} but for rounding: the largest difference is {off:.1e} of the loss."
    if math.isinf(off):
        what = "not a number" if any(map(math.isnan, [*losses, *alone])) else "0, infinite or missing"
        return f"{of_steps} {are} not {alone_in}: a loss is {what} in one of them."
    return (
        f"{of_steps} {differ} from {alone_in} by up to {off:.1e} of the loss, more than rounding explains "
        f"({measured.tolerance:g}). Batch normalization over micro-batches is one cause."
    )


def _ranks(found: Scale, measured: MeasuredRun, whole_ns: int) -> Table:
    data, line = measured.divided.degrees.data, found.timeline
    assert line is not None, "what runs is the best configuration"
    lanes = zip(lanes_of_ranks(measured.divided.degrees), computing_ns(line), strict=True)
    shares = [busy / line.makespan_ns for lane, busy in lanes for _ in lane.ranks]
    rows = [
        _Rank(
            *(rank, rank // data + 1, rank % data + 1),
            sum(each.nbytes for each in run.exchanged),
            sum(each.nbytes for each in planned),
            sum(run.sent_bytes.values()),
            *(run.computing_ns / whole_ns, share),
        )
        for rank, (run, planned, share) in enumerate(zip(measured.ranks, measured.predicted, shares, strict=True))
    ]
    remark = f"predicted for {found.problem.nodes.device.name}; shares of the step"
    return table(_Rank, rows, key="ranks", title="What each rank did", remark=remark)
