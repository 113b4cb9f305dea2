"""Placements: which device each layer or op runs on, predicted by simulation and found by search."""

from __future__ import annotations

from tensortide.placements.bounds import Bounds
from tensortide.placements.modes import ACCURATE, COMPAT, MODES, Mode
from tensortide.placements.nets.assignments import NAMED, Assignment, named_placement, read_assignment, write_assignment
from tensortide.placements.nets.net import Net, read_net
from tensortide.placements.op_times.times import OpTimes, Rates, layer_times
from tensortide.placements.partitions.problem import PartitionProblem
from tensortide.placements.partitions.workload import Workload, read_split, read_workload
from tensortide.placements.simulator.as_plan import PlacementTimeline, graph_of, plan_of, timelines_of
from tensortide.placements.simulator.problem import NetProblem
from tensortide.placements.simulator.settings import Settings
from tensortide.placements.simulator.simulation import Event, MemoryHistory, Simulation, simulate
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
