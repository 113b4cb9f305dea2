"""Section ``scale_run``: a divided step that ran here: losses, bytes and times of each rank, beside the predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.parallelism.pipelines import computing_ns, lanes_of_ranks
from tensortide.reports.blocks import Column, Fact, Note, Section, Table
from tensortide.reports.sections.ranks_run import LAST_STEP, facts, losses_table, run_section
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.studies.scale import Scale

if TYPE_CHECKING:
    from tensortide.run.placed.divided import MeasuredRun

__all__ = ["section"]


def section(found: Scale, measured: MeasuredRun) -> Section:
    """Make the section."""
    line = measured.timeline
    verdict = Note(text=_verdict(measured), kind="verdict" if _as_planned(measured) else "failure")
    losses, alone = measured.losses, measured.alone
    last = Fact("last_step", "Last step, measured", line.makespan_ns, "ns")
    shown = facts(losses, alone, steps=measured.divided.steps, step_ns=measured.step_ns, more=[last])
    tables = (losses_table(losses, alone, "mean over micro-batches and replicas"), _ranks(found, measured))
    remark = "" if len(line.lanes) == len(measured.ranks) else "of each stage the rank that ended last"
    picture = lanes_of("measured", LAST_STEP, line, remark=remark, only="page")
    return run_section("scale_run", verdict, shown, tables, picture, measured.held)


def _as_planned(measured: MeasuredRun) -> bool:
    pairs = zip(measured.ranks, measured.predicted, strict=True)
    return all(list(rank.exchanged) == list(planned) for rank, planned in pairs)


def _verdict(measured: MeasuredRun) -> str:
    degrees = str(measured.divided.degrees).replace("_", "-")
    said = "as their Graphs have it" if _as_planned(measured) else "other bytes than their Graphs have"
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
    remark = f"predicted for {found.request.cluster.device.name}; shares of the step"
    return Table(key="ranks", title="What each rank did", remark=remark, columns=columns)


def _predicted(found: Scale, measured: MeasuredRun) -> list[float]:
    """Share of the predicted step in which each rank computes its passes."""
    line = found.timeline
    assert line is not None, "what runs is the best configuration"
    lanes = zip(lanes_of_ranks(measured.divided.degrees), computing_ns(line), strict=True)
    return [busy / line.makespan_ns for lane, busy in lanes for _ in lane.ranks]
