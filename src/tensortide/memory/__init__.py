"""Memory of a step: lifetimes of storages, workspace of kernels, allocator models."""

from __future__ import annotations

from tensortide.memory.accumulate import accumulate_in_place
from tensortide.memory.allocators import ALLOCATORS, Allocator, Reservation, allocator, reserve
from tensortide.memory.cuda_allocator import CachingAllocator
from tensortide.memory.lifetimes import Lifetimes, Residence, footprint_bytes, lifetimes, residences
from tensortide.memory.rounding import CPU, CUDA_CACHING, EXACT, PAGES_4K, Rounding
from tensortide.memory.workspace import workspace_bytes

__all__ = [
    "ALLOCATORS",
    "CPU",
    "CUDA_CACHING",
    "EXACT",
    "PAGES_4K",
    "Allocator",
    "CachingAllocator",
    "Lifetimes",
    "Reservation",
    "Residence",
    "Rounding",
    "accumulate_in_place",
    "allocator",
    "footprint_bytes",
    "lifetimes",
    "reserve",
    "residences",
    "workspace_bytes",
]
