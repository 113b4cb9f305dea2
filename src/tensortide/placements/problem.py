"""The problem that every search of placements solves: which device each gene runs on.

A *gene* is a layer, a unit of a graph, or a group of them, in topological order. A *placement* is a row of device
numbers, one for each gene. Scores are milliseconds of all batches together, with the penalty of memory over-use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tensortide.placements.annealing.chain import NUMBER, Chain, decide, propose, simulated
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.bounds import Bounds
from tensortide.placements.genes import OnDevices, Sharing

Value = TypeVar("Value")
if TYPE_CHECKING:  # mypy takes a cached property for one that nothing can set, and so for none of the attributes below

    def computed(function: Callable[[Any], Value]) -> Value:
        """An attribute of a problem that ``function`` computes when it is first read."""

else:
    computed = functools.cached_property


class Problem:
    """Scores of placements, and the tables that planners read; a class of problems sets or computes each."""

    digest: str
    """Text that differs from that of every other problem: it stands for all that scores depend on."""
    names: Sequence[str]
    """Genes in topological order."""
    devices: int
    """Number of devices."""
    batches: int
    """Batches that a score counts together."""
    penalty_ms_per_byte: float
    """Milliseconds that a byte of over-use adds to a score."""
    edges: Ints
    """Gene numbers [m, 2]: producer, consumer."""
    work: Floats
    """Time of each gene on each device for one batch, ms [genes, devices]."""
    chained: Floats | None
    """The part of ``work`` that adds up along every chain of edges, as do ``transfers``: each gene does all of it
    after those before have done theirs. None where no chain says so."""
    transfers: Floats
    """Time that an edge takes between two devices for one batch, there and back, ms [m, devices, devices]. 0 on the
    diagonal; infinite where no link leads."""
    lanes: Ints
    """Number of the queue in which a transfer between two devices takes longest [devices, devices]; any on the
    diagonal, and where no link leads."""
    memory: Floats
    """Resident bytes of each gene for one batch [genes]: weights and what it stores."""
    copies: Floats
    """Bytes of one batch that an edge between two devices leaves on the consumer's [m]."""
    capacity: Floats
    """Bytes of each device [devices]."""
    activations: Floats
    """Bytes among ``memory`` that each further batch in flight takes once more [genes]."""
    pins: Mapping[int, int]
    """Genes whose device is fixed, with their device; placements that are proposed keep to it."""
    sharing: Sharing | None
    """The sharing of genes among devices; None where each is on one."""
    drains: bool
    """True if each batch runs backward as soon as it can, so that late stages keep fewer than are in flight."""
    in_flight: Callable[[int], int]
    """The batches in flight, at most, on a device of a pipeline with so many stages from its own on."""
    bounds: Bounds
    """Lower bounds on every score."""

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Return scores [k], ms with the penalty of over-use, and over-use [k], bytes. Several threads may call it at
        once."""
        raise NotImplementedError

    def on_devices(self, genes: Sequence[int]) -> tuple[OnDevices, ...]:
        """The device of each layer, node or unit of a placement [genes], or those that share it."""
        return tuple(genes)

    def anneal(self, chain: Chain, group_of: Ints, steps: int) -> int:
        """Take up to ``steps`` steps of ``chain``, whose genes are groups of those here, as ``group_of`` [genes] says,
        and return how many were taken: fewer where the chain is at its end, or needs something (``chain.propose``).

        Chains may run in several threads at once. A problem with a kernel has it take the steps.
        """
        for step in range(steps):
            if not propose(chain):
                return step
            if chain.counts[NUMBER] == -1:
                scores, over = self.evaluate(chain.new[group_of][None])
                simulated(chain, float(scores[0]), float(over[0]))
            decide(chain)
        return steps


class Derived(Problem):
    """``base`` with scores of its own (``evaluate``); its other figures that a subclass does not say are those of
    ``base``."""

    def __init__(self, base: Problem) -> None:
        self.base = base

    def on_devices(self, genes: Sequence[int]) -> tuple[OnDevices, ...]:
        return self.base.on_devices(genes)

    def __getattr__(self, name: str) -> Any:
        if name == "base":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.base, name)
