"""A step as axes of the mesh divide it, one after the other."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.graph.model import Graph
from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.propagate import Division
from tensortide.parallelism.shared import Shared


class Coordinates(NamedTuple):
    """The position of a rank in each of its groups. ``expert``: among ranks that share experts, unless that of its data
    and context; ``further``: along other axes, by name, where it is not 0."""

    data: int = 0
    context: int = 0
    tensor: int = 0
    expert: int | None = None
    further: frozenset[tuple[str, int]] = frozenset()

    def along(self, axis: str) -> int:
        """The position along a further axis."""
        return dict(self.further).get(axis, 0)


class Asked(NamedTuple):
    """The division of a step that is asked for: of the whole ``graph``, for the rank ``at`` its coordinates; ``shared``
    are results of earlier ones, and the others options of ``per_rank``."""

    graph: Graph
    degrees: Degrees
    at: Coordinates
    shared: Shared
    batch_dimension: int | None = None
    is_local: bool = False


class Replicated(NamedTuple):
    """An op with products that several ranks compute in full: its index in the step, its name, its module, its FLOPs
    (twice the multiply-accumulates), why it is not sharded, and how many ranks compute it (0: all)."""

    op_index: int
    op: str
    module: str
    flops: int
    why: str
    ranks: int = 0


class RankStep(NamedTuple):
    """The step of one rank before gradients are exchanged, and the ``divisions`` that led to it in order.

    ``batch`` is that of the whole step, ``micro_batch`` that of the rank, ``replicated`` what the tensor group does not
    divide; ``experts`` are the names of the parameters of experts, ``fullest`` the ranks whose experts have the most
    rows, together first and then in some layer (none where all have as many). ``making``: the ops of the whole step
    that make its batch, of which ``graph`` is given a part.
    """

    graph: Graph
    divisions: tuple[Division, ...] = ()
    batch: int | None = None
    micro_batch: int | None = None
    replicated: tuple[Replicated, ...] = ()
    remarks: tuple[str, ...] = ()
    experts: frozenset[str] = frozenset()
    fullest: tuple[int, ...] = ()
    making: Graph | None = None

    def then(self, other: RankStep) -> RankStep:
        """This step as ``other`` divides it further."""
        return other._replace(
            divisions=self.divisions + other.divisions,
            batch=self.batch or other.batch,
            micro_batch=self.micro_batch or other.micro_batch,
            replicated=self.replicated + other.replicated,
            remarks=self.remarks + other.remarks,
            experts=self.experts | other.experts,
            fullest=self.fullest or other.fullest,
            making=self.making,
        )
