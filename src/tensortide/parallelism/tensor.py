"""Tensor parallelism: the Graph of one rank, from axes that are found from the products of the step, not from names.

Candidates are axes of trained parameters. Sharding one divides the products it occurs in and leaves partial sums where
it is contracted, which cost all-reduces. Axes are taken in order of multiply-accumulates per byte that has to be
reduced, unless one that is taken already shares a tensor with them: a linear layer is split by columns or by rows,
never by both. An axis without products, that of an embedding table, is sharded if that saves more memory than it
communicates.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.cost import count
from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Phase, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import Asked, RankStep, Replicated
from tensortide.parallelism.partials import carried
from tensortide.parallelism.propagate import ALL, Division, Seed
from tensortide.parallelism.sequence import SequenceParts, token_axis
from tensortide.parallelism.sites import located
from tensortide.parallelism.tensor_groups import ACROSS, WITHIN, merged

GROUP = "tensor"
"""Name of the process group of tensor parallelism."""
COMPARABLE = 0.5
"""An axis that the ranks divide stands in for a better one that they do not if it saves at least this share of the
multiply-accumulates per byte."""


@dataclass(slots=True)
class _Candidate:
    """An axis that may be sharded: the ops whose products it divides, bytes to reduce, and bytes of parameters."""

    axis: Axis
    ops: set[int] = field(default_factory=set)
    macs: int = 0
    bytes: int = 0
    parameter_bytes: int = 0
    looked_up: bool = False

    @property
    def score(self) -> float:
        return self.macs / max(self.bytes, 1)


class Choice(NamedTuple):
    """The axes to shard, the products that stay replicated, and remarks."""

    axes: frozenset[Axis]
    replicated: tuple[Replicated, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shardable:
    """Candidates for sharding in an analyzed step, for any number of ranks: axes, those that share a tensor with each,
    and multiply-accumulates by op."""

    analysis: Analysis
    macs: Sequence[int]
    candidates: Mapping[Axis, _Candidate]
    clashes: Mapping[Axis, set[Axis]]


def shardable(analysis: Analysis) -> Shardable:
    """The axes of ``analysis`` among which ``chosen`` chooses."""
    macs = [0 if cost.cost is None else int(cost.cost.macs) for cost in count(analysis.graph).costs]
    return Shardable(analysis, macs, *_candidates(analysis, macs))


def chosen(step: Shardable, ranks: int) -> Choice:
    """The axes of ``step`` to shard among ``ranks``. Raises DegreesError if they do not divide an axis that no
    other one can stand in for; the message has the quotients."""
    analysis, candidates, clashes = step.analysis, step.candidates, step.clashes
    taken: dict[Axis, _Candidate] = {}
    uneven: list[_Candidate] = []
    ranked = sorted(candidates.values(), key=lambda c: (-c.score, c.axis))
    for candidate in ranked:
        if not clashes[candidate.axis].isdisjoint(taken) or not _worthwhile(candidate):
            continue
        if analysis.axes.size[candidate.axis] % ranks and not candidate.looked_up:
            others = [
                other
                for other in ranked
                if other.axis in clashes[candidate.axis]
                and analysis.axes.size[other.axis] % ranks == 0
                and clashes[other.axis].isdisjoint(taken)
                and other.score >= COMPARABLE * candidate.score
            ]
            if not others:
                uneven.append(candidate)
            continue
        taken[candidate.axis] = candidate
    given = _given_axes(analysis)
    uneven = [candidate for candidate in uneven if candidate.axis not in given]
    if uneven:
        raise DegreesError(_not_whole(analysis, ranks, uneven))
    return _result(step, taken, ranks)


def _given_axes(analysis: Analysis) -> frozenset[Axis]:
    """Axes of the inputs, which a model cannot choose (the colours of an image): they may stay whole."""
    inputs = [entry.tensor for entry in analysis.graph.named if entry.role is Role.INPUT]
    return frozenset(axis for tensor in inputs for axis in analysis.all_leaves(tensor))


def _worthwhile(candidate: _Candidate) -> bool:
    return candidate.macs > 0 or candidate.parameter_bytes > candidate.bytes


def _candidates(analysis: Analysis, macs: list[int]) -> tuple[dict[Axis, _Candidate], dict[Axis, set[Axis]]]:
    """Axes of trained parameters that may be divided, and for each of them those that share a tensor with it."""
    graph, axes = analysis.graph, analysis.axes
    barred = axes.cuts.keys() | axes.wholes.keys()
    trained = {entry.tensor for entry in graph.named if entry.role is Role.PARAMETER and entry.trainable}
    found: dict[Axis, _Candidate] = {}
    for tensor in trained:
        for axis in analysis.leaves(tensor):
            if axis not in barred:
                candidate = found.setdefault(axis, _Candidate(axis))
                candidate.parameter_bytes += int(graph.tensors[tensor].region_bytes)
    by_tensor = [analysis.all_leaves(t) for t in range(len(graph.tensors))]
    clashes: dict[Axis, set[Axis]] = {axis: set() for axis in found}
    twice: set[Axis] = set()
    for leaves in by_tensor:
        here = [axis for axis in leaves if axis in found]
        for axis in here:
            clashes[axis].update(other for other in here if other != axis)
            if here.count(axis) > 1:
                twice.add(axis)
    for index, op in enumerate(graph.ops):
        for axis in {axis for t in (*op.inputs, *op.outputs) for axis in by_tensor[t] if axis in found}:
            found[axis].ops.add(index)
            found[axis].macs += macs[index]
    for axis in twice:
        del found[axis]
    _count_partials(analysis, found)
    return found, clashes


def _count_partials(analysis: Analysis, found: dict[Axis, _Candidate]) -> None:
    """Note the bytes that sharding each candidate makes the ranks reduce."""
    graph = analysis.graph
    sources: dict[Axis, dict[int, tuple[int, ...]]] = {axis: {} for axis in found}
    for index, partials in analysis.partials.items():
        for partial in partials:
            for axis in analysis.axes.leaves(partial.axes):
                if axis in found:
                    sources[axis][index] = (*sources[axis].get(index, ()), partial.output)
                    found[axis].looked_up |= graph.calls[graph.ops[index].call].op.startswith("aten.embedding.")
    for axis, outputs in sources.items():
        found[axis].bytes = _reduced_bytes(graph, outputs)
    for op in graph.ops:
        call = graph.calls[op.call]
        if call.op.startswith("aten._log_softmax."):
            dim = dict(call.arguments)["dim"]
            for axis in analysis.axes.leaves([analysis.dims[op.inputs[0]][dim]]):  # type: ignore[index]  # a number
                if axis in found:
                    found[axis].looked_up = True


def _reduced_bytes(graph: Graph, outputs: dict[int, tuple[int, ...]]) -> int:
    """Bytes of the all-reduces of partial ``outputs``, by op: of sums of several of them only the sum is reduced."""
    owner, users = graph.index.owner, graph.index.users
    waiting: dict[int, int] = {}
    total = 0
    queue = list(outputs)
    heapq.heapify(queue)
    last = -1
    while queue:
        index = heapq.heappop(queue)
        if index == last:
            continue
        last, op = index, graph.ops[index]
        call = graph.calls[op.call]
        here, passed = carried(call, op, owner.__getitem__, waiting)
        made = [*outputs.get(index, ()), *passed]
        if passed:
            for storage in here:
                _push_next(queue, users[storage], index)
        else:
            total += sum(waiting.pop(storage) for storage in here)
        for tensor in made:
            waiting[owner[tensor]] = int(graph.tensors[tensor].region_bytes)
            _push_next(queue, users[owner[tensor]], index)
    return total


def _push_next(queue: list[int], users: tuple[int, ...], index: int) -> None:
    """Queue the first of ``users`` after ``index``."""
    place = bisect.bisect_right(users, index)
    if place < len(users):
        heapq.heappush(queue, users[place])


def _not_whole(analysis: Analysis, ranks: int, uneven: list[_Candidate]) -> str:
    """The message about axes that the ranks do not divide: each quotient once, with a parameter that has it, alone if
    there is one."""
    quotients: dict[str, str] = {}
    size = analysis.axes.size
    of_each = {candidate.axis for candidate in uneven}
    for candidate in uneven:
        name, beside = _example(analysis, candidate.axis, of_each)
        known = analysis.graph.meta.hyperparameters.items()
        names = [key for key, value in known if value == size[candidate.axis] and value is not True and not beside]
        label = f"{' or '.join(names) or 'an axis of'} {size[candidate.axis]} / tensor {ranks}"
        others = f", within one of {' x '.join(str(size[axis]) for axis in beside)}" if beside else ""
        quotients.setdefault(label, f"{label} is not whole (in {name}{others})")
    return f"tensor={ranks} does not divide this step: {'; '.join(quotients.values())}"


def _example(analysis: Analysis, axis: Axis, uneven: set[Axis]) -> tuple[str, list[Axis]]:
    """A parameter that has an axis, and the other ``uneven`` ones that it has: as few as possible (that of keys, not
    that of queries, which come in groups for each head of keys)."""
    found: tuple[str, list[Axis]] | None = None
    for entry in analysis.graph.named:
        leaves = analysis.leaves(entry.tensor) if entry.role is Role.PARAMETER else []
        others = [other for other in leaves if other in uneven and other != axis]
        if axis in leaves and (found is None or len(others) < len(found[1])):
            found = entry.name, others
    return found or (f"axis {axis}", [])


def _why(
    analysis: Analysis, index: int, candidates: Mapping[Axis, _Candidate], barred: dict[Axis, str], ranks: int
) -> str:
    """The reason why no axis of an op is sharded."""
    axes, op = analysis.axes, analysis.graph.ops[index]
    here = [axis for t in (*op.inputs, *op.outputs) for axis in analysis.all_leaves(t)]
    for axis in here:
        if axis in candidates and axes.size[axis] % ranks:
            return f"{axes.size[axis]} / {ranks} is not whole"
    if any(axis in candidates for axis in here):
        return "its axes share a tensor with one that is sharded"
    graph = analysis.graph
    trained = [e.tensor for e in graph.named if e.role is Role.PARAMETER and e.trainable]
    weights = {axis for tensor in trained for axis in analysis.all_leaves(tensor)}
    return next(
        (barred[axis] for axis in here if axis in barred and axis in weights), "it has no axis of a trained parameter"
    )


def _result(step: Shardable, taken: dict[Axis, _Candidate], ranks: int) -> Choice:
    analysis, graph, axes = step.analysis, step.analysis.graph, step.analysis.axes
    sharded = {op for candidate in taken.values() for op in candidate.ops}
    barred = {**axes.wholes, **axes.cuts}
    replicated = []
    for index, number in enumerate(step.macs):
        if number and index not in sharded:
            op = graph[index]
            why = _why(analysis, index, step.candidates, barred, ranks)
            replicated.append(Replicated(index, op.name, op.module, 2 * number * graph.trips(index), why))
    remarks = []
    for axis in taken:
        if axes.size[axis] % ranks:
            padded = -(-axes.size[axis] // ranks) * ranks
            remarks.append(f"an axis of {axes.size[axis]} rows of a table is padded to {padded} for {ranks} ranks")
    return Choice(frozenset(taken), tuple(replicated), tuple(remarks))


def divide(step: RankStep, asked: Asked) -> RankStep | None:
    """The step of one tensor rank; None if there are no others."""
    degrees, at, shared = asked.degrees, asked.at.tensor, asked.shared
    if degrees.kv_group:
        return shared(tensor_in_groups, step.graph, degrees.tensor, degrees.kv_group, at)
    if degrees.tensor == 1:
        return None
    whole = shared(shardable, shared(analyzed, step.graph))
    return shared(tensor_parallel, whole, degrees.tensor, at, sequence=degrees.sequence > 0)


def tensor_in_groups(graph: Graph, ranks: int, within: int, rank: int) -> RankStep:
    """The step of ``rank`` of ``ranks``, of which ``within`` neighbours share heads of keys and values. Raises
    DegreesError as ``tensor_parallel`` does."""
    outer = tensor_parallel(shardable(analyzed(graph)), ranks // within, rank // within, group=ACROSS)
    inner = tensor_parallel(shardable(analyzed(outer.graph)), within, rank % within, group=WITHIN)
    why = f"{within} ranks share it: "
    shared = tuple(each._replace(why=why + each.why, ranks=within) for each in inner.replicated)
    return outer.then(inner._replace(graph=merged(inner.graph, GROUP), replicated=shared))


def tensor_parallel(
    step: Shardable, ranks: int, rank: int = 0, *, sequence: bool = False, group: str = GROUP
) -> RankStep:
    """Shard an analyzed step among ``ranks`` of ``group``; ``sequence``: along the sequence what they do not divide
    otherwise.

    Raises DegreesError if they do not divide it.
    """
    analysis, choice = step.analysis, chosen(step, ranks)
    if sequence:
        analysis, choice = _along_sequence(analysis, choice, ranks)
    seed = Seed(Division(analysis, choice.axes, ranks, group), rank, combined=ALL)
    return RankStep(seed.graph(), (seed.division,), replicated=choice.replicated, remarks=choice.remarks)


def _along_sequence(analysis: Analysis, choice: Choice, ranks: int) -> tuple[Analysis, Choice]:
    """The step with exchanges of parts of its sequences, and the axes to divide with them: those of ``choice``, by the
    parameters that have them, and the parts of sequences."""
    tokens = token_axis(analysis)
    if analysis.axes.size[tokens] % ranks:
        raise DegreesError(f"tokens of a rank: seq / tensor = {analysis.axes.size[tokens]}/{ranks} is no whole number")
    made = SequenceParts(Division(analysis, choice.axes, ranks, GROUP), tokens)
    whole = analyzed(made.graph())
    axes: set[Axis] = set()
    for entry in analysis.graph.named:
        if entry.role is Role.PARAMETER:
            pairs = zip(analysis.all_leaves(entry.tensor), whole.all_leaves(entry.tensor), strict=True)
            axes.update(new for old, new in pairs if old in choice.axes)
    parts = {a for tensor, dim in made.parts.items() for a in whole.axes.leaves([whole.dims[tensor][dim]])}
    for index, op in enumerate(whole.graph.ops):
        here = [set(whole.all_leaves(t)) for t in (*op.inputs, *op.outputs)]
        if any(not leaves.isdisjoint(parts) and not leaves.isdisjoint(axes) for leaves in here):
            raise DegreesError(
                f"sequence: {located(whole.graph, index)} has tokens that are not told apart from those of products "
                "that tensor ranks divide"
            )
    axes |= parts
    of_tokens = Division(whole, frozenset(parts), ranks, GROUP)
    of_tokens.require(f"sequence: tokens are not divided among {ranks} tensor ranks")
    return whole, choice._replace(axes=frozenset(axes), replicated=())


def product_flops(graph: Graph, phases: Iterable[Phase] = Phase) -> int:
    """FLOPs in products: twice the multiply-accumulates of one step."""
    wanted = frozenset(phases)
    costs = count(graph).costs
    found = (
        2 * int(cost.cost.macs) * graph.trips(index)
        for index, cost in enumerate(costs)
        if cost.cost is not None and graph.ops[index].phase in wanted
    )
    return sum(found)
