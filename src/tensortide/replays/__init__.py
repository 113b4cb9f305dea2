"""Plans played: what happens to memory when a Graph is executed by a Plan."""

from __future__ import annotations

from tensortide.replays.executed import executed, replay, replay_transfers
from tensortide.replays.lanes import LanesTimeline, replay_lanes
from tensortide.replays.transfers import PlaceBytes, TransferTimeline

__all__ = [
    "LanesTimeline",
    "PlaceBytes",
    "TransferTimeline",
    "executed",
    "replay",
    "replay_lanes",
    "replay_transfers",
]
