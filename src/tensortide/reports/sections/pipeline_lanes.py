"""Picture of a pipeline, played or measured: a lane for each rank, and what runs on it."""

from __future__ import annotations

from tensortide.parallelism.pipelines import PipelineTimeline
from tensortide.reports.pictures import Lane, Spans

__all__ = ["lanes_of"]


def lanes_of(key: str, title: str, line: PipelineTimeline) -> Spans:
    """Make the picture, for pages."""
    lanes = []
    for rank, label in enumerate(line.lanes):
        own = [run for run in line.runs if run.rank == rank]
        kinds = tuple(run.kind.name.lower() for run in own)
        names = tuple(f"{kind} {run.task.micro_batch}" for kind, run in zip(kinds, own, strict=True))
        starts, ends = tuple(run.start_ns for run in own), tuple(run.end_ns for run in own)
        lanes.append(Lane(label, starts, ends, names, kinds))
    return Spans(key=key, title=title, x_unit="ns", lanes=tuple(lanes), only="page")
