"""One net placed on one cluster: the search, the run of its best placement, and what to hold it against."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from tensortide.errors import NothingFits, PlacementError
from tensortide.placements import Cluster, Net, NetProblem, Settings, Simulation, simulate
from tensortide.placements.genes import OnDevices
from tensortide.placements.nets.assignments import Gene
from tensortide.placements.problem import Problem
from tensortide.placements.search import Search, SearchResult
from tensortide.placements.search.groups import grouped
from tensortide.shown import Show
from tensortide.studies.placement.outcome import Placed


@dataclass(frozen=True)
class NetSubject:
    """A net to place: on which of the cluster's devices (None: all), in which groups of layers, and how it runs."""

    net: Net
    cluster: Cluster
    settings: Settings
    devices: tuple[int, ...] | None = None
    groups: str = "none"

    def __post_init__(self) -> None:
        """Raise PlacementError if the net puts a layer on a device that the cluster lacks."""
        count = len(self.cluster.devices)
        for layer, devices in zip(self.net.order, self.net.defaults, strict=True):
            if max(devices) >= count:
                known = f"devices are 0 to {count - 1}"
                raise PlacementError(f"{self.net.name}: layer {layer!r} has the device {max(devices)}: {known}.")

    @functools.cached_property
    def by_layers(self) -> NetProblem:
        """The problem with a gene for each layer. Raises NothingFits if a layer is too large for every device."""
        base = NetProblem(self.net, self.cluster, self.settings, where=self.devices)
        largest, resident = float(base.capacity.max()), base.tables.resident
        if (resident > largest).any():
            layer = int(np.argmax(resident))
            raise NothingFits(
                f"layer {self.net.order[layer]!r} of {self.net.name} needs {resident[layer]:,} bytes for its weights, "
                f"and the largest device that may be used has {largest:,.0f}."
            )
        return base

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem that is searched: by groups, if there are any."""
        return grouped(self.by_layers, self.groups)

    def run(self, placement: Sequence[Gene]) -> Simulation:
        """Simulate ``placement``, a device or several for each layer; over-use costs what it costs in the search."""
        factor = self.settings.memory_penalization_factor
        settings = replace(self.settings, memory_penalization_factor=1.0 if factor is None else factor)
        return simulate(self.net, self.cluster, placement, settings)

    def placed(self, by: Search, found: SearchResult) -> PlacedNet:
        """The result of a search ``by``, which has ``found`` a placement of the problem."""
        run = self.run(self.problem.on_devices(found.placement))
        return PlacedNet(self, by, run, _single(self), search=found)


@dataclass(eq=False, repr=False)
class PlacedNet(Placed):
    """The best placement that a search found.

    ``simulated`` is its simulation, ``single`` that of the best single device that fits, None if none does.
    """

    SECTION, TABLE = "placement", "runs"

    subject: NetSubject
    algorithm: Search
    simulated: Simulation
    single: Simulation | None
    search: SearchResult = field(kw_only=True)

    @property
    def fits(self) -> bool:
        return self.simulated.fits

    @property
    def single_ns(self) -> Annotated[int | None, Show("Best single device")]:
        """Time on the best single device."""
        return None if self.single is None else self.single.makespan_ns

    @property
    def gap_share(self) -> float | None:
        """The share by which the time may exceed the optimum; None where nothing fits: the bound is then one of scores,
        with the penalty of over-use."""
        return self.search.gap_share if self.fits else None

    @functools.cached_property
    def placement(self) -> tuple[OnDevices, ...]:
        """The device of each layer in topological order, or the devices that share it."""
        return self.subject.problem.on_devices(self.search.placement)

    @property
    def shared(self) -> Annotated[int, Show("Layers that devices share")]:
        """The number of layers in shards."""
        return sum(isinstance(one, tuple) for one in self.placement)

    @property
    def assignment(self) -> dict[str, OnDevices]:
        """The device or devices of each layer by name."""
        return dict(zip(self.subject.net.order, self.placement, strict=True))


def _single(subject: NetSubject) -> Simulation | None:
    """Simulate everything on the best single device that fits."""
    base = subject.by_layers
    rows = np.repeat(np.arange(base.devices)[:, None], len(base.names), axis=1)
    scores, over = base.evaluate(rows)
    fitting = np.flatnonzero(over <= 0)
    if not len(fitting):
        return None
    best = fitting[np.argmin(scores[fitting])]
    return subject.run([int(base.where[best])] * len(subject.net.order))
