"""How much memory a step takes: resident bytes over time, liveness, module roll-ups, allocator models."""

from __future__ import annotations

from tensortide.memory.accumulate import accumulate_in_place
from tensortide.memory.cuda_allocator import CachingAllocator, Reservation, reserve
from tensortide.memory.effects import IDENTITY, Effect, ModuleMemory, Segment, by_module, compose, effects
from tensortide.memory.footprint import footprint_bytes, storage_copies
from tensortide.memory.liveness import NEVER_READ, Life, Period, active_bytes, live_bytes, liveness
from tensortide.memory.resident import Resident
from tensortide.memory.rounding import CPU, CUDA_CACHING, EXACT, PAGES_4K, Rounding
from tensortide.memory.timeline import WORKSPACE, Timeline, timeline
from tensortide.memory.workspace import workspace_bytes

__all__ = [
    "CPU",
    "CUDA_CACHING",
    "EXACT",
    "IDENTITY",
    "NEVER_READ",
    "PAGES_4K",
    "WORKSPACE",
    "CachingAllocator",
    "Effect",
    "Life",
    "ModuleMemory",
    "Period",
    "Reservation",
    "Resident",
    "Rounding",
    "Segment",
    "Timeline",
    "accumulate_in_place",
    "active_bytes",
    "by_module",
    "compose",
    "effects",
    "footprint_bytes",
    "live_bytes",
    "liveness",
    "reserve",
    "storage_copies",
    "timeline",
    "workspace_bytes",
]
