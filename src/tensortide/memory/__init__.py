"""Memory of a step: resident bytes over time, liveness, module roll-ups, allocator models."""

from __future__ import annotations

from tensortide.memory.accumulate import accumulate_in_place
from tensortide.memory.advice import Offload, Recompute, offloads, recomputations
from tensortide.memory.allocators import ALLOCATORS, Allocator, Reservation, allocator, reserve
from tensortide.memory.cuda_allocator import CachingAllocator
from tensortide.memory.effects import IDENTITY, Effect, ModuleMemory, Segment, by_module, compose, effects
from tensortide.memory.footprint import footprint_bytes
from tensortide.memory.idle import Hideable, Idleness, MemoryTime, PeakSplit, Span, idleness
from tensortide.memory.link import LINKS, Link, link
from tensortide.memory.liveness import NEVER_READ, Life, Period, active_bytes, live_bytes, liveness
from tensortide.memory.resident import Resident
from tensortide.memory.rounding import CPU, CUDA_CACHING, EXACT, PAGES_4K, Rounding
from tensortide.memory.timeline import Timeline, timeline
from tensortide.memory.workspace import workspace_bytes

__all__ = [
    "ALLOCATORS",
    "CPU",
    "CUDA_CACHING",
    "EXACT",
    "IDENTITY",
    "LINKS",
    "NEVER_READ",
    "PAGES_4K",
    "Allocator",
    "CachingAllocator",
    "Effect",
    "Hideable",
    "Idleness",
    "Life",
    "Link",
    "MemoryTime",
    "ModuleMemory",
    "Offload",
    "PeakSplit",
    "Period",
    "Recompute",
    "Reservation",
    "Resident",
    "Rounding",
    "Segment",
    "Span",
    "Timeline",
    "accumulate_in_place",
    "active_bytes",
    "allocator",
    "by_module",
    "compose",
    "effects",
    "footprint_bytes",
    "idleness",
    "link",
    "live_bytes",
    "liveness",
    "offloads",
    "recomputations",
    "reserve",
    "timeline",
    "workspace_bytes",
]
