"""The step of one rank with the experts that are modules of it, their gradients and optimizer state.

In each pass of a layer the ops of all experts are brought together; before them one all-to-all sends rows to the owners
of their experts, after them one brings results back.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import RankStep
from tensortide.parallelism.exchange import PREFIX
from tensortide.parallelism.experts.module_experts import PASSES, ExpertModules, Pass
from tensortide.parallelism.experts.modules_exchange import Moves
from tensortide.parallelism.experts.owners import GROUP, check_divisible, owner_of
from tensortide.parallelism.experts.rank_experts import RankExperts, homes_of, with_norms
from tensortide.parallelism.propagate import Division, Seed
from tensortide.parallelism.rules.exchanged import row_dimension
from tensortide.parallelism.sites import located
from tensortide.parallelism.window import brought_together


def modules_step(graph: Graph, layers: list[ExpertModules], ranks: int, rank: int) -> RankStep:
    """The step of one of ``ranks`` over which the experts of ``layers`` are spread.

    Raises DegreesError if the ranks do not divide the experts of a layer, an expert has no rows or one, or an op needs
    what experts of several ranks make.
    """
    for layer in layers:
        check_divisible(len(layer.weights), ranks, layer.name)
    graph, layers = _together(graph, layers, ranks)
    moves = Moves(graph, layers, ranks)
    whole = moves.graph()
    analysis = analyzed(whole)
    longer = set[Axis]()
    for tensor in moves.arrived:
        dim = row_dimension(whole.tensors[tensor].shape)
        longer.update(analysis.axes.leaves([analysis.dims[tensor][dim]])[:1])
    _check_one_by_one(analysis, longer, ranks)
    _check_apart(analysis, longer, moves, ranks)

    seed = Seed(Division(analysis, frozenset(), ranks, GROUP, frozenset(longer)), rank)
    draft, names = seed.draft(), _owners(graph, layers, ranks)
    homes = homes_of(draft.graph, names)
    left_out = {moves.places[i] for i, owner in moves.region.items() if owner != rank}
    local = RankExperts(draft, left_out, {s for s, owner in homes.items() if owner != rank}).graph()
    local = with_norms(local, homes_of(local, names).keys(), GROUP, ranks)
    remarks, fullest = (_remark(layers, moves, ranks, rank),), _fullest(layers, moves.rows, ranks)
    return RankStep(local, (seed.division,), remarks=remarks, experts=frozenset(names), fullest=fullest)


def _check_one_by_one(analysis: Analysis, longer: set[Axis], ranks: int) -> None:
    """Raise DegreesError where an op needs all rows of an expert, or the forward pass sums them."""
    graph = analysis.graph
    mixing = "rows of an expert are not computed one by one"
    for axis in longer:
        for why in analysis.reasons(axis):
            raise DegreesError(f"expert={ranks}: {mixing}: {why}")
    for index, partials in analysis.partials.items():
        axes = {axis for partial in partials for axis in analysis.axes.leaves(partial.axes)}
        if Pass.of(graph.ops[index]) != PASSES[-1] and not longer.isdisjoint(axes):
            raise DegreesError(f"expert={ranks}: {mixing}: {located(graph, index)} sums over them")


def _check_apart(analysis: Analysis, longer: set[Axis], moves: Moves, ranks: int) -> None:
    """Raise DegreesError where an op outside experts has the rows that have arrived."""
    inside = {moves.places[index] for index in moves.region}
    for index, op in enumerate(analysis.graph.ops):
        if index not in inside and not analysis.graph.calls[op.call].op.startswith(PREFIX):
            for tensor in (*op.inputs, *op.outputs):
                if not longer.isdisjoint(analysis.all_leaves(tensor)):
                    raise DegreesError(
                        f"expert={ranks}: {located(analysis.graph, index)} has rows that are not told apart from "
                        "those of experts"
                    )


def _owners(graph: Graph, layers: list[ExpertModules], ranks: int) -> dict[str, int]:
    """The rank of every parameter of an expert, by its name."""
    owner = graph.index.owner
    rank_of = {
        storage: owner_of(number, len(layer.weights), ranks)
        for layer in layers
        for number, storages in enumerate(layer.weights)
        for storage in storages
    }
    named = [e for e in graph.named if e.role is Role.PARAMETER and owner[e.tensor] in rank_of]
    return {e.name: rank_of[owner[e.tensor]] for e in named}


def _together(graph: Graph, layers: list[ExpertModules], ranks: int) -> tuple[Graph, list[ExpertModules]]:
    """The step with the ops of all experts of a layer one after the other, in each pass."""
    for each in PASSES:
        for number in range(len(layers)):
            region = layers[number].regions[each]
            if not region:
                continue
            made = brought_together(graph, region)
            if isinstance(made, int):
                raise DegreesError(
                    f"expert={ranks}: {located(graph, made)} reads what an expert of {layers[number].name} makes, and "
                    "another expert needs it"
                )
            graph, places = made
            for layer in layers:
                layer.graph = graph
                layer.regions = {
                    key: {places[i]: expert for i, expert in ops.items()} for key, ops in layer.regions.items()
                }
    return graph, layers


def _fullest(layers: list[ExpertModules], rows: Mapping[tuple[str, int], int], ranks: int) -> tuple[int, ...]:
    """The rank with the most ``rows``, and those with the most in a layer; none where all have as many in each."""
    found = []
    for layer in layers:
        of_ranks = [0] * ranks
        for expert in range(len(layer.weights)):
            of_ranks[owner_of(expert, len(layer.weights), ranks)] += rows.get((layer.name, expert), 0)
        found.append(of_ranks)
    if all(len(set(of_ranks)) == 1 for of_ranks in found):
        return ()
    together = [sum(each) for each in zip(*found, strict=True)]
    return tuple(dict.fromkeys(of_ranks.index(max(of_ranks)) for of_ranks in (together, *found)))


def _remark(layers: list[ExpertModules], moves: Moves, ranks: int, rank: int) -> str:
    """Say which modules count as experts, and how many rows those of the first layer have."""
    layer = layers[0]
    number = len(layer.weights)
    rows = [moves.rows.get((layer.name, expert), 0) for expert in range(number)]
    own = sum(n for expert, n in enumerate(rows) if owner_of(expert, number, ranks) == rank)
    balanced = len(set(rows)) == 1
    text = f"{rows[0]} rows to every one" if balanced else f"as many rows as were captured, {min(rows)} to {max(rows)}"
    of_rank = "" if balanced else f" ({own} of {sum(rows)} to this rank, balanced {sum(rows) // ranks})"
    others = f" (and those of {len(layers) - 1} more layers)" * (len(layers) > 1)
    return (
        f"{layer.name}.0 to {number - 1}{others} are taken for experts, {number // ranks} to a rank; each of {ranks} "
        f"ranks sends {text}{of_rank}."
    )
