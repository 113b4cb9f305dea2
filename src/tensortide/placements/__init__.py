"""Placements: which device each layer or op runs on, predicted by simulation and found by search."""

from __future__ import annotations

from tensortide.placements.bounds import Bounds
from tensortide.placements.modes import ACCURATE, COMPAT, MODES, Mode
from tensortide.placements.nets import (
    NAMED,
    Assignment,
    Net,
    named_placement,
    read_assignment,
    read_net,
    write_assignment,
)
from tensortide.placements.op_times import OpTimes, Rates, layer_times
from tensortide.placements.partitions import PartitionProblem, Workload, read_split, read_workload
from tensortide.placements.simulator import (
    Event,
    MemoryHistory,
    NetProblem,
    PlacementTimeline,
    Settings,
    Simulation,
    graph_of,
    plan_of,
    simulate,
    timelines_of,
)
from tensortide.timing.clusters import Cluster, load_cluster, read_device_graph

__all__ = [
    "ACCURATE",
    "COMPAT",
    "MODES",
    "NAMED",
    "Assignment",
    "Bounds",
    "Cluster",
    "Event",
    "MemoryHistory",
    "Mode",
    "Net",
    "NetProblem",
    "OpTimes",
    "PartitionProblem",
    "PlacementTimeline",
    "Rates",
    "Settings",
    "Simulation",
    "Workload",
    "graph_of",
    "layer_times",
    "load_cluster",
    "named_placement",
    "plan_of",
    "read_assignment",
    "read_device_graph",
    "read_net",
    "read_split",
    "read_workload",
    "simulate",
    "timelines_of",
    "write_assignment",
]
