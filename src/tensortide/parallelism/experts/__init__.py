"""Expert parallelism: the experts of every mixture are spread over ranks, to which tokens travel and back.

Experts are *stacked*, indexes of one parameter of a batched or grouped product, or *modules* of their own. For each
kind one file finds them (``stacked.py``, ``module_experts.py``), one has the exchanges of tokens
(``stacked_exchange.py``, ``modules_exchange.py``), and one makes the step of a rank (``stacked_step.py``,
``modules_step.py``).
"""

from __future__ import annotations

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.divided_step import Asked, RankStep
from tensortide.parallelism.experts.module_experts import expert_modules
from tensortide.parallelism.experts.modules_step import modules_step
from tensortide.parallelism.experts.stacked import StackedExperts
from tensortide.parallelism.experts.stacked_step import stacked_step


def divide(step: RankStep, asked: Asked) -> RankStep | None:
    """The step of one of the ranks that share experts; None if there are no others."""
    degrees, at = asked.degrees, asked.at
    if degrees.expert == 1:
        return None
    rank = (at.data * degrees.context + at.context) % degrees.expert if at.expert is None else at.expert
    return asked.shared(expert_parallel, step.graph, degrees.expert, rank)


def expert_parallel(graph: Graph, ranks: int, rank: int) -> RankStep:
    """The step of one of ``ranks`` over which experts are spread.

    Raises DegreesError if the step has no experts, they are not divided evenly, or an op needs the results of experts
    of several ranks.
    """
    experts = StackedExperts(analyzed(graph))
    if experts.products:
        return stacked_step(experts, ranks, rank)
    layers = expert_modules(graph)
    if layers:
        return modules_step(graph, layers, ranks, rank)
    raise DegreesError(
        f"expert={ranks}: the step has no experts to divide: no parameter (experts, rows, columns) in a batched or "
        "grouped product, and no modules NAME.0, NAME.1, ... alike that do not read each other's results"
    )
