"""Placements: which device each layer or op runs on, predicted by simulation and found by search."""

from __future__ import annotations

from tensortide.placements.clusters import Channel, Cluster, Device, Neighbour, read_cluster
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
from tensortide.placements.op_times import OpTimes, Rates, op_times
from tensortide.placements.simulator import (
    Bounds,
    Event,
    MemoryHistory,
    NetProblem,
    Settings,
    Simulation,
    simulate,
)

__all__ = [
    "ACCURATE",
    "COMPAT",
    "MODES",
    "NAMED",
    "Assignment",
    "Bounds",
    "Channel",
    "Cluster",
    "Device",
    "Event",
    "MemoryHistory",
    "Mode",
    "Neighbour",
    "Net",
    "NetProblem",
    "OpTimes",
    "Rates",
    "Settings",
    "Simulation",
    "named_placement",
    "op_times",
    "read_assignment",
    "read_cluster",
    "read_net",
    "simulate",
    "write_assignment",
]
