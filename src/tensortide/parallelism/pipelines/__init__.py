"""Schedules of pipelines: the order of each rank's work, played with given durations as a Timeline."""

from __future__ import annotations

from tensortide.parallelism.pipelines.orders import Task, order
from tensortide.parallelism.pipelines.play import Pass, PipelineTimeline, Run, StageTime, play

__all__ = ["Pass", "PipelineTimeline", "Run", "StageTime", "Task", "order", "play"]
