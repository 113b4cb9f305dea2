"""Placing captured steps: units, transfers, micro-batches, simulation, and a Plan with a lane per device."""

from __future__ import annotations

from tensortide.placements.graphs.cluster_file import load_cluster
from tensortide.placements.graphs.machine import ClusterDevice, Connection, DeviceCluster, joined
from tensortide.placements.graphs.options import PlaceOptions
from tensortide.placements.graphs.placed_step import PlacedStep, Ready, follow, place, placed, played, ready
from tensortide.placements.graphs.problem import GraphProblem
from tensortide.placements.graphs.schedules import MicroBatchSchedule
from tensortide.placements.graphs.units import Grouping, Units, units_of

__all__ = [
    "ClusterDevice",
    "Connection",
    "DeviceCluster",
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
