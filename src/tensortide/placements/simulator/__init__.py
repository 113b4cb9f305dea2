"""The event simulator of placements: devices with queues of ops, lanes with queues of transfers, memory kept along."""

from __future__ import annotations

from tensortide.placements.simulator.as_plan import PlacementTimeline, graph_of, plan_of, timelines_of
from tensortide.placements.simulator.kernel import over_use
from tensortide.placements.simulator.problem import NetProblem
from tensortide.placements.simulator.settings import Settings
from tensortide.placements.simulator.simulation import Event, MemoryHistory, Simulation, simulate

__all__ = [
    "Event",
    "MemoryHistory",
    "NetProblem",
    "PlacementTimeline",
    "Settings",
    "Simulation",
    "graph_of",
    "over_use",
    "plan_of",
    "simulate",
    "timelines_of",
]
