"""A step after one way of dividing it."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.graph.model import Graph
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis


class Division(NamedTuple):
    """Division of the tensors of a Graph: by the ``chosen`` axes of its ``analysis``, among ``parts`` ranks of the
    ``group``. ``grown`` axes are as many times longer on each rank."""

    analysis: Analysis
    chosen: frozenset[Axis]
    parts: int
    group: str
    grown: frozenset[Axis] = frozenset()


class Local(NamedTuple):
    """The Graph of one rank, and how it was divided."""

    graph: Graph
    division: Division


class ExpertParallel(NamedTuple):
    """The Graph of one rank, how it was divided, the names of the parameters of experts, and what is assumed.

    ``fullest``: ranks whose experts have the most rows, together first and then in some layer; none where all have as
    many.
    """

    graph: Graph
    division: Division
    names: frozenset[str]
    remarks: tuple[str, ...]
    fullest: tuple[int, ...] = ()
