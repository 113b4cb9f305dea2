"""Schedules of pipelines: the order of each rank's work, played with given durations as a Timeline."""

from __future__ import annotations

from tensortide.parallelism.pipelines.orders import Task, order
from tensortide.parallelism.pipelines.play import PipelineTimeline, StageTime, play

__all__ = ["PipelineTimeline", "StageTime", "Task", "order", "play"]
