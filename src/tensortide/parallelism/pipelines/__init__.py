"""Schedules of pipelines: the order of each rank's work, played with given durations as a Timeline."""

from __future__ import annotations

from tensortide.parallelism.pipelines.play import Pass, PipelineTimeline, Run, StageTime, play
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
    "Pass",
    "PipelineName",
    "PipelineSchedule",
    "PipelineTimeline",
    "Run",
    "StageTime",
    "Task",
    "order",
    "play",
]
