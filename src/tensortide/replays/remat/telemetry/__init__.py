"""Telemetry of a run under a budget: by tensor, by storage, by op, and memory at every event."""

from __future__ import annotations

from tensortide.replays.remat.telemetry.build_records import telemetry
from tensortide.replays.remat.telemetry.records import (
    Counters,
    Held,
    Moments,
    OpRecord,
    Stop,
    StorageRecord,
    Telemetry,
    TensorRecord,
)

__all__ = [
    "Counters",
    "Held",
    "Moments",
    "OpRecord",
    "Stop",
    "StorageRecord",
    "Telemetry",
    "TensorRecord",
    "telemetry",
]
