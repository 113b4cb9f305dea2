"""The step of one rank with stacked experts divided: their parameters along the axis of experts, and what follows."""

from __future__ import annotations

from tensortide.errors import DegreesError
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import RankStep
from tensortide.parallelism.experts.owners import GROUP, check_divisible
from tensortide.parallelism.experts.stacked import StackedExperts
from tensortide.parallelism.experts.stacked_exchange import with_stand_ins
from tensortide.parallelism.propagate import Division, Seed
from tensortide.parallelism.sites import located


def stacked_step(experts: StackedExperts, ranks: int, rank: int) -> RankStep:
    """The step of one of ``ranks`` over which ``experts`` are spread.

    Raises DegreesError if experts or their rows are not divided evenly, or an op needs all experts.
    """
    _check(experts, ranks)
    whole, grown = with_stand_ins(experts)
    analysis = analyzed(whole)
    chosen = _axes(analysis, experts, ranks)
    longer = frozenset(axis for t in grown for axis in analysis.axes.leaves([analysis.dims[t][1]])[:1])
    seed = Seed(Division(analysis, chosen, ranks, GROUP, longer), rank, combined=("norm",))
    return RankStep(seed.graph(), (seed.division,), remarks=_remarks(experts, ranks), experts=experts.names)


def _check(experts: StackedExperts, ranks: int) -> None:
    """Raise DegreesError unless ``ranks`` divide the experts of every layer, and experts their rows."""
    graph, axes = experts.analysis.graph, experts.analysis.axes
    for name, axis in experts.axes.items():
        check_divisible(axes.size[axis], ranks, name)
    numbers = {axes.size[axis] for axis in experts.axes.values()}
    for op in sorted(experts.products):
        rows = experts.rows(op)
        if rows and len(numbers) > 1:
            raise DegreesError(f"expert={ranks}: layers with different numbers of experts {sorted(numbers)}")
        if rows % max(numbers):
            raise DegreesError(
                f"expert={ranks}: rows / experts = {rows}/{max(numbers)} is no whole number in {located(graph, op)}: "
                "no routing is balanced"
            )


def _axes(analysis: Analysis, experts: StackedExperts, ranks: int) -> frozenset[Axis]:
    """The axes of experts to divide, once all ops but their own have been seen not to need them whole."""
    whole = analysis.graph
    chosen: set[Axis] = set()
    products = {i for i, op in enumerate(whole.ops) if whole.calls[op.call].op.startswith("aten._grouped_mm")}
    for entry in whole.named:
        if entry.name not in experts.axes:
            continue
        (axis, *_) = analysis.axes.leaves(analysis.dims[entry.tensor][:1])
        for why in analysis.reasons(axis, products.__contains__):
            raise DegreesError(f"expert={ranks} does not divide {entry.name}: {why}")
        chosen.add(axis)
    return frozenset(chosen)


def _remarks(experts: StackedExperts, ranks: int) -> tuple[str, ...]:
    graph = experts.analysis.graph
    names = {graph.calls[graph.ops[op].call].op for op in experts.products}
    if any("grouped" in name for name in names):
        return (f"Routing is taken to be balanced: 1/{ranks} of the rows for the experts of each rank.",)
    return ("Every expert computes all slots of its capacity, full or not.",)
