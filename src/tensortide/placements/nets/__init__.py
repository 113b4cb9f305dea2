"""Networks described in JSON, as placements see them: layers in topological order, shards, assignments to devices."""

from __future__ import annotations

from tensortide.placements.nets.assignments import Assignment, read_assignment, write_assignment
from tensortide.placements.nets.named import NAMED, named_placement
from tensortide.placements.nets.net import Net, read_net
from tensortide.placements.nets.sharding import expand

__all__ = [
    "NAMED",
    "Assignment",
    "Net",
    "expand",
    "named_placement",
    "read_assignment",
    "read_net",
    "write_assignment",
]
