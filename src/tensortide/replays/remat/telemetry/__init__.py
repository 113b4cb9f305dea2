"""What happened in a run under a budget, told in full: by tensor, by storage, by op, and memory at every event."""

from __future__ import annotations

from tensortide.replays.remat.telemetry.records import (
    EVENTS,
    Counters,
    Held,
    Moments,
    OpRecord,
    Stop,
    StorageRecord,
    Telemetry,
    TensorRecord,
)
from tensortide.replays.remat.telemetry.tell import telemetry

__all__ = [
    "EVENTS",
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
