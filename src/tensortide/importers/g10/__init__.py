"""Kernel traces and liveness files of G10 (MICRO 2023) and of the tensor liveness tool that came from it."""

from __future__ import annotations

from tensortide.importers.g10.compare import Comparison, compare
from tensortide.importers.g10.kernels import Kernel, TensorLine, read_kernels, read_tensors
from tensortide.importers.g10.liveness import StatedLife, StatedPeriod, read_liveness
from tensortide.importers.g10.logs import (
    MemoryLog,
    PeriodsLog,
    read_active,
    read_clock,
    read_memory_log,
    read_periods_log,
    read_profile,
)
from tensortide.importers.g10.read import read_trace

__all__ = [
    "Comparison",
    "Kernel",
    "MemoryLog",
    "PeriodsLog",
    "StatedLife",
    "StatedPeriod",
    "TensorLine",
    "compare",
    "read_active",
    "read_clock",
    "read_kernels",
    "read_liveness",
    "read_memory_log",
    "read_periods_log",
    "read_profile",
    "read_tensors",
    "read_trace",
]
