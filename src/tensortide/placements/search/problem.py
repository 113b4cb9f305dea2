"""The problem that every search of placements solves: which device each gene runs on.

A *gene* is a layer, a unit of a graph, or a group of them, in topological order. A *placement* is a row of device
numbers, one for each gene. Scores are milliseconds of all batches together, with the penalty of memory over-use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tensortide.placements.annealing.chain import Chain
from tensortide.placements.bounds import Bounds
from tensortide.placements.genes import Sharing

Placements: TypeAlias = NDArray[np.int64]
"""Placements [k, genes], or one [genes]: the device of each gene, or the number of a set of them (``genes``)."""
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


class Problem(Protocol):
    """Scores of placements, and the tables that planners read."""

    @property
    def digest(self) -> str:
        """Text that differs from that of every other problem: it stands for all that scores depend on."""

    @property
    def names(self) -> Sequence[str]:
        """Genes in topological order."""

    @property
    def devices(self) -> int:
        """Number of devices."""

    @property
    def batches(self) -> int:
        """Batches that a score counts together."""

    @property
    def penalty_ms_per_byte(self) -> float:
        """Milliseconds that a byte of over-use adds to a score."""

    @property
    def edges(self) -> Ints:
        """Gene numbers [m, 2]: producer, consumer."""

    @property
    def work(self) -> Floats:
        """Time of each gene on each device for one batch, ms [genes, devices]."""

    @property
    def chained(self) -> Floats | None:
        """The part of ``work`` that adds up along every chain of edges, as do ``transfers``: each gene does all of it
        after those before have done theirs. None where no chain says so."""

    @property
    def transfers(self) -> Floats:
        """Time that an edge takes between two devices for one batch, there and back, ms [m, devices, devices].

        0 on the diagonal; infinite where no link leads.
        """

    @property
    def lanes(self) -> Ints:
        """Number of the queue in which a transfer between two devices takes longest [devices, devices]; any on the
        diagonal, and where no link leads."""

    @property
    def memory(self) -> Floats:
        """Resident bytes of each gene for one batch [genes]: weights and what it stores."""

    @property
    def copies(self) -> Floats:
        """Bytes of one batch that an edge between two devices leaves on the consumer's [m]."""

    @property
    def capacity(self) -> Floats:
        """Bytes of each device [devices]."""

    @property
    def activations(self) -> Floats:
        """Bytes among ``memory`` that each further batch in flight takes once more [genes]."""

    @property
    def pins(self) -> Mapping[int, int]:
        """Genes whose device is fixed, with their device; placements that are proposed keep to it."""

    @property
    def sharing(self) -> Sharing | None:
        """The sharing of genes among devices; None where each is on one."""

    @property
    def drains(self) -> bool:
        """True if each batch runs backward as soon as it can, so that late stages keep fewer than are in flight."""

    def in_flight(self, stages: int) -> int:
        """Return the batches in flight, at most, on a device of a pipeline with ``stages`` stages from its own on."""

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Return scores [k], ms with the penalty of over-use, and over-use [k], bytes."""

    def bounds(self) -> Bounds:
        """Return lower bounds on every score."""


class OnDevicesOf:
    """The part of a problem that is about its devices: that of another problem, ``base``."""

    base: Problem

    @property
    def sharing(self) -> Sharing | None:
        return None

    @property
    def devices(self) -> int:
        return self.base.devices

    @property
    def lanes(self) -> Ints:
        return self.base.lanes

    @property
    def capacity(self) -> Floats:
        return self.base.capacity

    @property
    def drains(self) -> bool:
        return self.base.drains

    def in_flight(self, stages: int) -> int:
        return self.base.in_flight(stages)


@runtime_checkable
class Anneals(Problem, Protocol):
    """A problem whose own kernel takes steps of annealing."""

    def anneal(self, chain: Chain, group_of: Ints, steps: int) -> int:
        """Take up to ``steps`` steps of ``chain``, whose genes are groups of those here, as ``group_of`` [genes] says,
        and return how many were taken. Chains may run in several threads at once."""
