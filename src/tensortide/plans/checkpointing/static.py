"""A step as its values: a node for each op, with its cost, the bytes of what it makes, and whom it reads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tensortide.errors import PlanError


@dataclass(frozen=True, kw_only=True)
class StaticGraph:
    """Input of planners that know the whole step. Nodes are numbered in the order of the step.

    ``cost_ns``: time to compute a node. ``nbytes``: bytes of its result. ``parents``: nodes it reads, ascending.
    ``backward``: whether it comes after the loss that it differentiates. ``until``: the last node before whose first
    computation the node may be recomputed; its own number if it is computed once (see ``collapse``). ``kept``:
    nodes that the step leaves behind. ``fixed_bytes``: bytes resident throughout. ``fixed_ns``: time of ops that no
    node stands for.

    ``ops``: the ops of the Graph that a node stands for, ascending; ``views`` those of them that only rename memory
    and run once. ``storages``: the storages of the Graph whose bytes it makes. All three are empty in made-up graphs.

    Raises PlanError if a node reads a later one, or if the lengths differ.
    """

    cost_ns: tuple[int, ...]
    nbytes: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    backward: tuple[bool, ...]
    until: tuple[int, ...] = ()
    kept: frozenset[int] = frozenset()
    fixed_bytes: int = 0
    fixed_ns: int = 0
    ops: tuple[tuple[int, ...], ...] = ()
    views: frozenset[int] = frozenset()
    storages: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.cost_ns)
        if not self.until:
            object.__setattr__(self, "until", (count - 1,) * count)
        for name in ("ops", "storages"):
            if not getattr(self, name):
                object.__setattr__(self, name, ((),) * count)
        columns = (self.nbytes, self.parents, self.backward, self.until, self.ops, self.storages)
        if any(len(column) != count for column in columns):
            raise PlanError("the columns of a static graph are of different lengths")
        for node, read in enumerate(self.parents):
            if list(read) != sorted({u for u in read if 0 <= u < node}):
                raise PlanError(f"node {node} reads {read}: its parents are earlier nodes, each once, ascending")

    def __len__(self) -> int:
        return len(self.cost_ns)

    @functools.cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each node those that read it, ascending."""
        found: list[list[int]] = [[] for _ in self.parents]
        for node, read in enumerate(self.parents):
            for parent in read:
                found[parent].append(node)
        return tuple(map(tuple, found))

    @property
    def forward(self) -> list[int]:
        """The nodes that are not of the backward pass."""
        return [node for node, later in enumerate(self.backward) if not later]

    @property
    def base_ns(self) -> int:
        """Time of the step when every node is computed once."""
        return sum(self.cost_ns)


def chain(length: int, cost_ns: Sequence[int] = (), nbytes: Sequence[int] = ()) -> StaticGraph:
    """The training step of a linear network of ``length`` layers (Jain et al. 2020, section 4).

    Nodes 0 .. length - 1 are the forward pass, node ``length`` is the loss, node 2 length - i is the gradient of
    forward node i. Each reads the one before it; gradients also read their forward node. Costs and bytes are 1 unless
    given for all 2 length + 1 nodes. The loss counts as a forward node.
    """
    count = 2 * length + 1
    parents = [{node - 1} if node else set() for node in range(count)]
    for layer in range(length):
        parents[2 * length - layer].add(layer)
    return StaticGraph(
        cost_ns=tuple(cost_ns) or (1,) * count,
        nbytes=tuple(nbytes) or (1,) * count,
        parents=tuple(tuple(sorted(read)) for read in parents),
        backward=tuple(node > length for node in range(count)),
    )
