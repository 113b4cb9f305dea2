"""Workspaces of libraries on the devices of a placement: each device that runs ops of a library has its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.graph.model import Graph
from tensortide.memory.libraries import BLAS_WORKSPACES, blas_handles, blas_workspace_bytes
from tensortide.placements.graphs.machine import DeviceCluster
from tensortide.timing.catalogue import Device, device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.memory.lifetimes import Ints


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
        """The bytes that each of ``count`` units needs on each device [units, devices]; ``shared``: equal parts of each
        workspace, so that a device has no less than the sum of those of its units."""
        import numpy as np

        found = np.zeros((count, self.nbytes.shape[1]))
        for units, sizes in zip(self.units, self.nbytes, strict=True):
            found[list(units)] += sizes / (len(units) if shared else 1)
        return found


def libraries_of(graph: Graph, of_op: Sequence[int], cluster: DeviceCluster) -> Libraries:
    """The libraries of ``graph``, whose ops are in the units ``of_op``, on the devices of ``cluster``."""
    import numpy as np

    captured = {held.name: int(held.nbytes) for held in graph.storages if held.name in BLAS_WORKSPACES}
    units: list[set[int]] = [set() for _ in BLAS_WORKSPACES]
    for unit, handle in zip(of_op, blas_handles(graph) if captured else (), strict=bool(captured)):
        if handle is not None:
            units[handle].add(unit)
    used = [handle for handle, name in enumerate(BLAS_WORKSPACES) if name in captured and units[handle]]
    nbytes = [
        [_workspace_bytes(each.row, captured[BLAS_WORKSPACES[handle]], graph.meta.machine) for each in cluster.devices]
        for handle in used
    ]
    return Libraries(
        tuple(tuple(sorted(units[handle])) for handle in used), np.array(nbytes, np.int64).reshape(-1, len(cluster))
    )


def _workspace_bytes(row: Device, captured: int, machine: str) -> int:
    """Bytes of one handle on a device, where the step was ``captured`` with as many on ``machine``: PyTorch's default
    for its type, and the same as captured where that was none, or where there is no default. A CPU has none."""
    if row.kind == "cpu":
        return 0
    of = device(machine) if machine else None
    if of is None or row.vendor not in ("NVIDIA", "AMD") or captured != blas_workspace_bytes(of.vendor, of.arch):
        return captured
    return blas_workspace_bytes(row.vendor, row.arch)
