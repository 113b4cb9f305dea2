"""A workload of dnn-partitioning, split over its devices for the largest throughput."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from tensortide.errors import RequestError
from tensortide.placements.partitions.problem import PartitionProblem
from tensortide.placements.partitions.workload import is_workload, read_workload
from tensortide.placements.search import Search, SearchResult
from tensortide.request import Request
from tensortide.shown import Show
from tensortide.studies.placement.outcome import Placed

NS = 1e6


def refuse_workload(path: Path) -> None:
    """Raise RequestError if ``path`` is a workload, of verbs that take networks of layers alone."""
    if is_workload(path):
        raise RequestError(f"{path} is a workload of dnn-partitioning: tensortide place and place compare take it")


def workload_problem(path: Path, *others: Request) -> PartitionProblem:
    """The problem of a workload. Raises RequestError for an option of ``others``, which go with other targets."""
    for one in (one for request in others for one in request.given()):
        raise RequestError(f"{path} is a workload, which names its devices: {one.name} goes with other targets")
    return PartitionProblem(read_workload(path))


@dataclass(frozen=True)
class DeviceLoad:
    """One device of a split; a CPU core has no limit of memory."""

    device: Annotated[str, Show("Device", "code")]
    nodes: Annotated[int, Show("Nodes")]
    load_ns: Annotated[float, Show("Time per sample")]
    size_bytes: Annotated[float, Show("Memory")]
    capacity_bytes: Annotated[float | None, Show("of")]


@dataclass(eq=False, repr=False)
class PlacedWorkload(Placed):
    """The best split that a search found."""

    SECTION, TABLE = "placed_workload", "devices"

    problem: PartitionProblem
    algorithm: Search
    search: SearchResult = field(kw_only=True)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The device of each node, in the order of the file."""
        return self.problem.on_devices(self.search.placement)

    @functools.cached_property
    def devices(self) -> tuple[DeviceLoad, ...]:
        """The load and memory of each device."""
        workload, nodes = self.problem.workload, self.nodes
        loads, sizes = self.problem.loads(np.array(self.search.placement, np.int64))
        return tuple(
            DeviceLoad(
                f"cpu{number}" if number < workload.cpus else f"accelerator{number - workload.cpus}",
                nodes.count(number),
                float(loads[number]) * NS,
                float(sizes[number]),
                None if number < workload.cpus else float(workload.bytes_per_accelerator),
            )
            for number in range(workload.devices)
        )

    @property
    def load_ns(self) -> Annotated[float, Show("Largest time per sample")]:
        """The time of the busiest device."""
        return max(one.load_ns for one in self.devices)

    @property
    def single_ns(self) -> Annotated[float | None, Show("On one device")]:
        """The time on the best single device that fits."""
        return None if self.search.single_ms is None else self.search.single_ms * NS

    @property
    def fits(self) -> Annotated[bool, Show("Fits")]:
        """True if no accelerator is over its memory."""
        return not self.search.over_bytes
