"""Timelines: everything that happens when a step is played, and the questions asked of them."""

from __future__ import annotations

from tensortide.timelines.advice import Offload, Recompute, offloads, recomputations
from tensortide.timelines.diff import Difference, KindTime, TimelineFigures, diff, mean_figures, mean_times
from tensortide.timelines.effects import IDENTITY, Effect, ModuleMemory, Segment, by_module, compose, effects
from tensortide.timelines.events import Events, Kind, events_of
from tensortide.timelines.idle import Hideable, Idleness, MemoryTime, PeakSplit, idleness
from tensortide.timelines.intervals import NEVER_READ, Interval, Life, active_bytes, live_bytes, liveness
from tensortide.timelines.resident import Resident
from tensortide.timelines.timeline import StorageTimeline, Timeline, timeline

__all__ = [
    "IDENTITY",
    "NEVER_READ",
    "Difference",
    "Effect",
    "Events",
    "Hideable",
    "Idleness",
    "Interval",
    "Kind",
    "KindTime",
    "Life",
    "MemoryTime",
    "ModuleMemory",
    "Offload",
    "PeakSplit",
    "Recompute",
    "Resident",
    "Segment",
    "StorageTimeline",
    "Timeline",
    "TimelineFigures",
    "active_bytes",
    "by_module",
    "compose",
    "diff",
    "effects",
    "events_of",
    "idleness",
    "live_bytes",
    "liveness",
    "mean_figures",
    "mean_times",
    "offloads",
    "recomputations",
    "timeline",
]
