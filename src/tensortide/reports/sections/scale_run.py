"""Section ``scale_run``: a divided step that ran here: losses, bytes and times of each rank, beside the predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensortide.parallelism.pipelines import PipelineTimeline
from tensortide.reports.blocks import Column, Note, Section, Table
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
    shown = facts(losses, alone, steps=measured.divided.steps, step_ns=measured.step_ns)
    tables = (losses_table(losses, alone, "mean over micro-batches and replicas"), _ranks(found, measured, line))
    picture = lanes_of("measured", LAST_STEP, line, only="page")
    return run_section("scale_run", verdict, shown, tables, picture, measured.held)


def _as_planned(measured: MeasuredRun) -> bool:
    pairs = zip(measured.ranks, measured.predicted, strict=True)
    return all(list(rank.exchanged) == list(planned) for rank, planned in pairs)


def _verdict(measured: MeasuredRun) -> str:
    degrees = str(measured.divided.degrees).replace("_", "-")
    said = "as their Graphs have it" if _as_planned(measured) else "other bytes than their Graphs have"
    return f"{measured.divided.degrees.devices:,} processes ({degrees}) exchanged {said}."


def _ranks(found: Scale, measured: MeasuredRun, line: PipelineTimeline) -> Table:
    ranks, data = range(len(measured.ranks)), measured.divided.degrees.data
    whole = line.makespan_ns or 1
    planned = tuple(sum(each.nbytes for each in some) for some in measured.predicted)
    columns = (
        Column("rank", "Rank", "count", tuple(ranks)),
        Column("stage", "stage", "count", tuple(rank // data for rank in ranks)),
        Column("replica", "replica", "count", tuple(rank % data for rank in ranks)),
        Column("bytes", "exchanged", "bytes", tuple(sum(e.nbytes for e in each.exchanged) for each in measured.ranks)),
        Column("planned", "by its Graph", "bytes", planned),
        Column("sent", "sent", "bytes", tuple(sum(each.sent_bytes.values()) for each in measured.ranks)),
        Column("busy", "computes, measured", "share", tuple(line.busy_ns(rank) / whole for rank in ranks)),
        Column("predicted", "computes, predicted", "share", tuple(_predicted(found, [rank // data for rank in ranks]))),
    )
    remark = f"predicted for {found.request.cluster.device.name}; shares of the step"
    return Table(key="ranks", title="What each rank did", remark=remark, columns=columns)


def _predicted(found: Scale, stages: Sequence[int]) -> list[float | None]:
    """Share of the predicted step in which the rank of each stage computes its passes."""
    best = found.best
    if best is None or best.found is None:
        return [None for _ in stages]
    whole, parts = best.found.time.time_ns, best.found.parts
    if found.pipeline is None:
        return [parts["compute"] / whole for _ in stages]
    line = found.pipeline
    inside = sum(parts.get(name, 0.0) for name in ("compute", "bubble", "transfer")) / whole
    return [inside * line.busy_ns(stage) / line.makespan_ns for stage in stages]
