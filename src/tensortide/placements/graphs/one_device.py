"""The batch of all groups of devices on one device, which the speed of several groups is compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tensortide.placements.graphs.placed_step import Ready, placed, ready
from tensortide.placements.graphs.units import Grouping
from tensortide.timing.catalogue import Device
from tensortide.timing.clusters import Cluster, ClusterDevice


class OneDevice(NamedTuple):
    """The device on which a step takes the least time of those that fit it, or else of all: its name, the time, and
    whether it ``fits``."""

    name: str
    step_ns: int
    fits: bool


def on_one_device(step: Ready) -> OneDevice | None:
    """The step on the batch of all groups, on the best single device of the first one, without pins and shards. None if
    there is one group, or if times or workspaces of ops are given: those of the whole batch are not known then."""
    if step.replicas is None or step.times_given or not isinstance(step.options.workspace, bool):
        return None
    plain = replace(step.options, data=1, pins={}, shards=(), grouping=Grouping())
    alone: dict[tuple[Device, int | None], tuple[bool, int, str]] = {}
    for device in step.replicas.cluster.devices:
        key = (device.row, device.capacity_bytes)
        if key not in alone:
            unlimited = Cluster(device.name, (ClusterDevice(device.name, device.row),))
            made = ready(step.captured, unlimited, plain)
            run = placed(made, [0] * len(made.problem.names))
            peak = run.devices[0].peak_bytes
            over = device.capacity_bytes is not None and peak > device.capacity_bytes
            alone[key] = (over, run.step_ns, device.name)
    over, ns, name = min(alone.values())
    return OneDevice(name, ns, not over)
