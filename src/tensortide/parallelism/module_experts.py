"""Expert parallelism of experts that are modules of their own.

Each rank keeps the modules of its experts, with their gradients and optimizer state. In each pass of a layer the ops of
all experts are brought together; before them one all-to-all sends rows to the owners of their experts, after them one
brings results back. A tensor that several experts of a rank read (all tokens, where gates are applied afterwards) is
sent to it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import GIVEN, Axis
from tensortide.parallelism.divided_step import Division, ExpertParallel
from tensortide.parallelism.draft import Draft
from tensortide.parallelism.exchange import PREFIX, moved_views, replaced, stand_in
from tensortide.parallelism.expert_modules import PASSES, ExpertModules, Pass
from tensortide.parallelism.local import LocalSizes
from tensortide.parallelism.own_experts import Own, homes_of, with_norms
from tensortide.parallelism.routed import local_form
from tensortide.parallelism.rules.exchanged import row_dimension
from tensortide.parallelism.sites import located
from tensortide.parallelism.window import brought_together

replace = msgspec.structs.replace


def module_parallel(graph: Graph, layers: list[ExpertModules], ranks: int, rank: int, group: str) -> ExpertParallel:
    """The step of one of ``ranks`` of ``group`` over which the experts of ``layers`` are spread.

    Raises DegreesError if the ranks do not divide the experts of a layer, an expert has no rows or one, or an op needs
    what experts of several ranks make.
    """
    for layer in layers:
        if len(layer.weights) % ranks:
            raise DegreesError(
                f"experts of a rank: experts / expert = {len(layer.weights)}/{ranks} is no whole number (in "
                f"{layer.name})"
            )
    graph, layers = _together(graph, layers, ranks)
    moves = _Moves(graph, layers, ranks)
    whole = moves.graph()
    analysis = analyzed(whole)
    longer = set[Axis]()
    for tensor in moves.arrived:
        dim = row_dimension(whole.tensors[tensor].shape)
        longer.update(analysis.axes.leaves([analysis.dims[tensor][dim]])[:1])
    _check_one_by_one(analysis, longer, ranks)
    _check_apart(analysis, longer, moves, ranks)
    draft = Draft(LocalSizes(analysis, frozenset(), ranks, longer).graph())
    replaced(draft, partial(local_form, draft, group, ranks, rank, moves.owners))
    names = _owners(graph, layers, ranks)
    homes = homes_of(draft.graph, names)
    left_out = {moves.places[i] for i, owner in moves.region.items() if owner != rank}
    local = Own(draft, left_out, {s for s, owner in homes.items() if owner != rank}).graph()
    local = with_norms(local, homes_of(local, names).keys(), group, ranks)
    division = Division(analysis, frozenset(), ranks, group, frozenset(longer))
    remarks = (_remark(layers, moves, ranks, rank),)
    return ExpertParallel(local, division, frozenset(names), remarks, _fullest(layers, moves.rows, ranks))


def _check_one_by_one(analysis: Analysis, longer: set[Axis], ranks: int) -> None:
    """Raise DegreesError where an op needs all rows of an expert, or the forward pass sums them."""
    graph = analysis.graph
    mixing = "rows of an expert are not computed one by one"
    for axis in longer:
        for index, why in analysis.axes.needs(axis).items():
            where = "" if index == GIVEN or located(graph, index) in why else f"{located(graph, index)}: "
            raise DegreesError(f"expert={ranks}: {mixing}: {where}{why}")
    for index, partials in analysis.partials.items():
        axes = {axis for partial in partials for axis in analysis.axes.leaves(partial.axes)}
        if Pass.of(graph.ops[index]) != PASSES[-1] and not longer.isdisjoint(axes):
            raise DegreesError(f"expert={ranks}: {mixing}: {located(graph, index)} sums over them")


def _check_apart(analysis: Analysis, longer: set[Axis], moves: _Moves, ranks: int) -> None:
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
        storage: number * ranks // len(layer.weights)
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


@dataclass(slots=True)
class _Moves:
    """The whole step with stand-ins where rows travel. ``region``: the owner of every op of an expert; ``places``: its
    index in the Graph with stand-ins; ``arrived``: tensors with the rows of all ranks; ``owners``: by stand-in;
    ``rows``: of every expert in its layer, the most that it reads."""

    whole: Graph
    layers: Sequence[ExpertModules]
    ranks: int
    region: dict[int, int] = field(default_factory=dict)
    owners: list[tuple[int, ...]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    _draft: Draft = field(init=False)
    _moved: dict[int, dict[int, int]] = field(default_factory=dict)
    _back: dict[int, int] = field(default_factory=dict)

    def graph(self) -> Graph:
        """The step with stand-ins."""
        self._draft = Draft(self.whole)
        for layer in self.layers:
            for each in PASSES:
                for index, expert in layer.regions[each].items():
                    self.region[index] = expert * self.ranks // len(layer.weights)
        turns = {
            min(layer.regions[each]): (layer, each) for layer in self.layers for each in PASSES if layer.regions[each]
        }
        ends = {max(layer.regions[each]): (layer, each) for layer, each in turns.values()}
        for index, op in enumerate(self.whole.ops):
            if index in turns:
                self._dispatch(*turns[index])
            moved = self._moved.setdefault(self.region[index], {}) if index in self.region else self._back
            if index not in self.region:
                self._check_views(index, op)
            changed = tuple(moved.get(t, t) for t in op.inputs)
            if changed != op.inputs:
                moved_views(self._draft, op, moved)
                outputs = tuple(moved.get(t, t) for t in op.outputs)
                self._draft.replaced[index] = [replace(op, inputs=changed, outputs=outputs)]
            if index in ends:
                self._combine(*ends[index])
        made = self._draft.finished()
        at = 0
        for index in range(len(self.whole.ops)):
            at += len(self._draft.before.get(index, ()))
            self.places.append(at)
            at += 1
        return made

    def _dispatch(self, layer: ExpertModules, each: Pass) -> None:
        """Send what experts read that others make, before the first of their ops in a pass."""
        ops = sorted(layer.regions[each])
        items: dict[tuple[int, int], None] = {}
        for index in ops:
            op, expert = self.whole.ops[index], layer.regions[each][index]
            written = {op.inputs[slot] for slot in self.whole.calls[op.call].mutated}
            for tensor in op.inputs:
                if tensor in layer.inside:
                    continue
                self._check_rows(index, tensor, f"{layer.name}.{expert}", writes=tensor in written)
                shape = self.whole.tensors[tensor].shape
                key = layer.name, expert
                self.rows[key] = max(self.rows.get(key, 0), shape[row_dimension(shape)])
                if tensor not in self._moved.setdefault(self.region[index], {}):
                    items[self._back.get(tensor, tensor), self.region[index]] = None
                    self._moved[self.region[index]][tensor] = -1
        experts = set(layer.regions[each].values())
        if each == PASSES[0] and len(experts) < len(layer.weights):
            missing = min(set(range(len(layer.weights))) - experts)
            raise DegreesError(f"expert={self.ranks}: {layer.name}.{missing} computes nothing in this step")
        back = {new: old for old, new in self._back.items()}
        for (tensor, owner), new in self._sent("dispatch_experts", list(items), ops[0]).items():
            self._moved[owner][back.get(tensor, tensor)] = new
            self.arrived.append(new)

    def _combine(self, layer: ExpertModules, each: Pass) -> None:
        """Bring back what others read of what experts make, after the last of their ops in a pass."""
        ops = layer.regions[each]
        made = {t: self.region[i] for i in ops for t in self.whole.ops[i].outputs if layer.inside.get(t) == ops[i]}
        read: dict[int, None] = {}
        for index, op in enumerate(self.whole.ops):
            if op.phase is not Phase.OPTIMIZER and index not in layer.regions.get(Pass.of(op), {}):
                for tensor in op.inputs:
                    if tensor in made and tensor not in self._back and not self._named(tensor):
                        read[tensor] = None
                        self._check_rows(index, tensor, layer.name)
        items = sorted(((t, made[t]) for t in read), key=lambda item: (item[1], item[0]))
        for (tensor, _), new in self._sent("combine_experts", items, max(ops) + 1).items():
            self._back[tensor] = new

    def _check_views(self, index: int, op: Op) -> None:
        """Raise DegreesError where an op changes one of several views that came back, each as a copy."""
        owner = self.whole.index.owner
        for tensor in (op.inputs[slot] for slot in self.whole.calls[op.call].mutated):
            if tensor in self._back and any(owner[t] == owner[tensor] for t in self._back if t != tensor):
                raise DegreesError(
                    f"expert={self.ranks}: {located(self.whole, index)} changes what an expert has made, which others "
                    "read in another shape"
                )

    def _named(self, tensor: int) -> bool:
        """Return whether a tensor is a gradient or another that has a name and outlives the step."""
        return bool(self.whole.storages[self.whole.index.owner[tensor]].name)

    def _sent(self, kind: str, items: list[tuple[int, int]], index: int) -> dict[tuple[int, int], int]:
        """Insert stand-ins before the op at ``index``, one for each dtype; the new tensor of every item."""
        like = self.whole.ops[min(index, len(self.whole.ops) - 1)]
        found: dict[tuple[int, int], int] = {}
        for dtype in dict.fromkeys(self._draft.tensors[t].dtype for t, _ in items):
            these = [item for item in items if self._draft.tensors[item[0]].dtype == dtype]
            made = [self._draft.fresh(t, self._draft.tensors[t].shape) for t, _ in these]
            op: Op = stand_in(self._draft, kind, [t for t, _ in these], made, len(self.owners), like)
            op = replace(op, phase=self.whole.ops[index - 1].phase if kind.startswith("combine") else like.phase)
            self._draft.insert(index, op)
            self.owners.append(tuple(owner for _, owner in these))
            found |= dict(zip(these, made, strict=True))
        return found

    def _check_rows(self, index: int, tensor: int, expert: str, *, writes: bool = False) -> None:
        """Raise DegreesError unless a tensor has rows of tokens, more than one."""
        shape = self.whole.tensors[tensor].shape
        where = f"{located(self.whole, index)}, of {expert}" if index in self.region else located(self.whole, index)
        text = f"({', '.join(map(str, shape))})"
        if writes:
            raise DegreesError(f"expert={self.ranks}: {where}, changes {text} in place, which others read")
        if len(shape) < 2:
            raise DegreesError(f"expert={self.ranks}: {where}, reads {text}, which is no rows of tokens")
        if max(shape[:-1]) < 2:
            raise DegreesError(
                f"expert={self.ranks}: {where}, reads {text}, fewer than two rows. Capture a step with more of them "
                "for every expert (--assume gives numbers)"
            )


def _fullest(layers: list[ExpertModules], rows: Mapping[tuple[str, int], int], ranks: int) -> tuple[int, ...]:
    """The rank with the most ``rows``, and those with the most in a layer; none where all have as many in each."""
    found = []
    for layer in layers:
        of_ranks = [0] * ranks
        for expert in range(len(layer.weights)):
            of_ranks[expert * ranks // len(layer.weights)] += rows.get((layer.name, expert), 0)
        found.append(of_ranks)
    if all(len(set(of_ranks)) == 1 for of_ranks in found):
        return ()
    together = [sum(each) for each in zip(*found, strict=True)]
    return tuple(dict.fromkeys(of_ranks.index(max(of_ranks)) for of_ranks in (together, *found)))


def _remark(layers: list[ExpertModules], moves: _Moves, ranks: int, rank: int) -> str:
    """Say which modules count as experts, and how many rows those of the first layer have."""
    layer = layers[0]
    number = len(layer.weights)
    rows = [moves.rows.get((layer.name, expert), 0) for expert in range(number)]
    own = sum(n for expert, n in enumerate(rows) if expert * ranks // number == rank)
    balanced = len(set(rows)) == 1
    text = f"{rows[0]} rows to every one" if balanced else f"as many rows as were captured, {min(rows)} to {max(rows)}"
    of_rank = "" if balanced else f" ({own} of {sum(rows)} to this rank, balanced {sum(rows) // ranks})"
    others = f" (and those of {len(layers) - 1} more layers)" * (len(layers) > 1)
    return (
        f"{layer.name}.0 to {number - 1}{others} are taken for experts, {number // ranks} to a rank; each of {ranks} "
        f"ranks sends {text}{of_rank}."
    )
