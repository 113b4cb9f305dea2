"""Schedules of pipelines: the order of each rank's work, played with given durations as a Timeline."""

from __future__ import annotations

from tensortide.parallelism.pipelines.play import Pass, PipelineTimeline, Run, StageTime, play
from tensortide.parallelism.pipelines.schedules import DEFAULT, SCHEDULES, PipelineSchedule, Schedule, Task, order

__all__ = [
    "DEFAULT",
    "SCHEDULES",
    "Pass",
    "PipelineSchedule",
    "PipelineTimeline",
    "Run",
    "Schedule",
    "StageTime",
    "Task",
    "order",
    "play",
]
