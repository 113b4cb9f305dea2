"""Schedules of pipelines: the order of each rank's work, played with given durations, and Timelines of its ranks."""

from __future__ import annotations

from tensortide.parallelism.pipelines.play import StageTime, play
from tensortide.parallelism.pipelines.runs import (
    RankLane,
    Run,
    RunKind,
    bubble,
    computing_ns,
    lanes_of_ranks,
    spent_ns,
    timeline_of,
)
from tensortide.parallelism.pipelines.schedules import (
    DEFAULT_SCHEDULE,
    SCHEDULES,
    PipelineName,
    PipelineSchedule,
    Task,
    order,
)

__all__ = [
    "DEFAULT_SCHEDULE",
    "SCHEDULES",
    "PipelineName",
    "PipelineSchedule",
    "RankLane",
    "Run",
    "RunKind",
    "StageTime",
    "Task",
    "bubble",
    "computing_ns",
    "lanes_of_ranks",
    "order",
    "play",
    "spent_ns",
    "timeline_of",
]
