"""Placing captured steps: units, transfers, micro-batches, simulation, and a Plan with a lane per device."""

from __future__ import annotations

from tensortide.placements.graphs.options import PlaceOptions
from tensortide.placements.graphs.placed_step import PlacedStep, Ready, follow, place, placed, played, ready
from tensortide.placements.graphs.problem import GraphProblem
from tensortide.placements.graphs.schedules import MicroBatchSchedule
from tensortide.placements.graphs.units import Grouping, Units, units_of
from tensortide.timing.clusters import Cluster, ClusterDevice, joined, load_cluster

__all__ = [
    "Cluster",
    "ClusterDevice",
    "GraphProblem",
    "Grouping",
    "MicroBatchSchedule",
    "PlaceOptions",
    "PlacedStep",
    "Ready",
    "Units",
    "follow",
    "joined",
    "load_cluster",
    "place",
    "placed",
    "played",
    "ready",
    "units_of",
]
