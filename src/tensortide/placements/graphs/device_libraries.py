"""Workspaces of libraries on the devices of a placement: each device that runs ops of a library has its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensortide.memory import blas_workspaces
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.units import Units
from tensortide.timing.catalogue import Device, device
from tensortide.timing.clusters import Cluster


@dataclass(frozen=True, eq=False)
class Libraries:
    """For each handle of a library the ``units`` whose ops compute with it, ascending; and the bytes that it takes on
    each device with such a unit, throughout the step: ``nbytes`` [handles, devices]."""

    units: tuple[tuple[int, ...], ...]
    nbytes: Ints

    def resident(self, place: Sequence[int]) -> list[int]:
        """The bytes on each device, if units are placed as ``place`` says."""
        found = [0] * self.nbytes.shape[1]
        for units, sizes in zip(self.units, self.nbytes.tolist(), strict=True):
            for at in {place[unit] for unit in units}:
                found[at] += sizes[at]
        return found

    def of_units(self, count: int, *, shared: bool = False) -> NDArray[np.float64]:
        """The bytes that each of ``count`` units needs on each device [units, devices]; ``shared``: each unit's equal
        part of the workspace, a lower bound on what a device has."""
        found = np.zeros((count, self.nbytes.shape[1]))
        for units, sizes in zip(self.units, self.nbytes, strict=True):
            found[list(units)] += sizes / (len(units) if shared else 1)
        return found


def libraries_of(units: Units, cluster: Cluster) -> Libraries:
    """The libraries of a step on the devices of ``cluster``: storages that are at home with no unit. All units need one
    that is no workspace of BLAS: which ops use it is not known."""
    graph, users = units.graph, {name: set[int]() for name in blas_workspaces.NAMES}
    for unit, handle in zip(units.of_op, blas_workspaces.handles(graph), strict=True):
        if handle is not None:
            users[blas_workspaces.NAMES[handle]].add(unit)
    held = [each for each, unit in zip(graph.storages, units.home, strict=True) if unit < 0]
    used = [(int(each.nbytes), sorted(users.get(each.name, range(len(units))))) for each in held]
    used = [(captured, own) for captured, own in used if own]
    nbytes = [
        [_workspace_bytes(each.row, captured, graph.meta.machine) for each in cluster.devices] for captured, _ in used
    ]
    return Libraries(tuple(tuple(own) for _, own in used), np.array(nbytes, np.int64).reshape(-1, len(cluster)))


def _workspace_bytes(row: Device, captured: int, machine: str) -> int:
    """Bytes of one handle on a device, where the step was ``captured`` with as many on ``machine``: PyTorch's default
    for its type, and the same as captured where that was none, or where there is no default. A CPU has none."""
    if row.kind == "cpu":
        return 0
    of = device(machine) if machine else None
    if (
        of is None
        or row.vendor not in ("NVIDIA", "AMD")
        or captured != blas_workspaces.default_bytes(of.vendor, of.arch)
    ):
        return captured
    return blas_workspaces.default_bytes(row.vendor, row.arch)
