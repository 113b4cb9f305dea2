"""Context parallelism: every rank has an equal part of each sequence, its tokens from the first layer to the loss.

Attention needs the keys and values of all tokens: each rank gathers them before the kernel, in the forward and again in
the backward pass, and what its queries add to their gradients is summed and scattered (Llama 3, 2024, section 3.3.2).
Or keys and values travel in a ring (``ring_attention``), which moves the same bytes. What depends on inputs and buffers
alone and needs whole sequences, such as positions, tables of rotations and shifted labels, is computed by every rank,
which takes its part of the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import tensortide.parallelism.masks  # noqa: F401  (the form "gather")
from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase, Role
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.batch import batch_asked, sequence_of
from tensortide.parallelism.constant_ops import constants, given_tensors
from tensortide.parallelism.degrees import KeysBy
from tensortide.parallelism.divided_step import Asked, RankStep
from tensortide.parallelism.draft import Draft, replace
from tensortide.parallelism.exchange import noted, stand_in
from tensortide.parallelism.keys import ATTENTION, Keys
from tensortide.parallelism.own_samples import PLACED, by_part
from tensortide.parallelism.partials import all_reduce
from tensortide.parallelism.propagate import Division, Seed
from tensortide.parallelism.recorded_sizes import RecordedSizes
from tensortide.parallelism.ring_attention import check_ring
from tensortide.parallelism.sites import base_name, holes_of, located

GROUP = "context"
"""Name of the process group of context parallelism."""
_CACHE = "cache_utils.py"
"""File of ``transformers`` that keeps keys and values of earlier tokens."""


def divide(step: RankStep, asked: Asked) -> RankStep | None:
    """The step of one context rank; None if there are no others."""
    ranks = asked.degrees.context
    if ranks == 1:
        return None
    dimension = batch_asked(asked).sequence_dimension
    return asked.shared(context_parallel, step.graph, ranks, asked.at.context, dimension, asked.degrees.keys)


def context_parallel(graph: Graph, ranks: int, rank: int, dimension: int = 1, keys: KeysBy = "gather") -> RankStep:
    """The step of one of ``ranks`` that divide its sequences, which are a ``dimension`` of its inputs; ``keys`` says
    how keys and values of fused attention come to the queries of all.

    Raises DegreesError, which names the op, its module and line, if an op needs whole sequences in another way.
    """
    sequence = _Sequence(graph, ranks, dimension, keys)
    whole = sequence.with_stand_ins()
    analysis = analyzed(whole)
    axis = sequence.checked(whole, analysis)
    chosen = frozenset({axis} | analysis.axes.followers({axis}))
    sizes = RecordedSizes(analysis, chosen, ranks)

    def adapt(draft: Draft, index: int, op: Op) -> None:
        name = base_name(draft.calls[op.call].op)
        if name.startswith(ATTENTION):
            if keys != "gather":
                check_ring(draft, index, op, ranks, zigzag=keys == "zigzag")
            draft.replaced[index] = [noted(draft, op, keys, GROUP, ranks, rank)]
        if name == "nll_loss_forward" and axis in analysis.all_leaves(whole.ops[index].inputs[1]):
            draft.insert(index + 1, *all_reduce(draft, op.outputs[1], "avg", GROUP, op))
        sizes.adapt(draft, index, op)

    seed = Seed(Division(analysis, chosen, ranks, GROUP), rank, means=True, adapt=adapt)
    return RankStep(seed.graph(), (seed.division,), remarks=sizes.remarks("sequences"))


@dataclass(slots=True)
class _Sequence:
    """The sequence of the first input of ``graph``, and where ranks have to exchange or cut their parts of it.

    ``given`` are tensors that all ranks have whole and of which each takes its part.
    """

    graph: Graph
    ranks: int
    dimension: int
    keys_by: KeysBy
    analysis: Analysis = field(init=False)
    axis: Axis = field(init=False)
    witness: int = field(init=False)
    keys: Keys = field(init=False)
    free: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.analysis = analyzed(self.graph)
        self.witness, leaves = sequence_of(self.analysis, self.dimension, f"context={self.ranks}")
        self.axis = leaves[0]
        size = self.graph.tensors[self.witness].shape[self.dimension]
        if self.analysis.axes.size[self.axis] % self.ranks or size % self.ranks:
            shifted = ": give the step tokens and shifted labels as two tensors" if size % self.ranks == 1 else ""
            raise DegreesError(f"tokens of a rank: seq / context = {size}/{self.ranks} is no whole number{shifted}")
        if self.keys_by == "zigzag" and size % (2 * self.ranks):
            raise DegreesError(f"two parts of a rank: seq / (2 * context) = {size}/{2 * self.ranks} is no whole number")
        self.free = constants(self.graph)
        self.keys = Keys(self.analysis, self.axis, given_tensors(self.graph, self.free))

    def attention(self, graph: Graph) -> list[int]:
        """Fused attention, forward and backward, of ``graph``."""
        return [i for i, op in enumerate(graph.ops) if base_name(graph.calls[op.call].op).startswith(ATTENTION)]

    def with_stand_ins(self) -> Graph:
        """The whole step with a stand-in wherever ranks exchange or cut parts of a sequence."""
        draft = Draft(self.graph)
        whole = self._whole_islands()
        self._cut_constants(draft, whole)
        for index in self.attention(self.graph) if self.keys_by == "gather" else ():
            op = draft.replaced.get(index, [self.graph.ops[index]])[0]
            draft.replaced[index] = self._gathering(draft, index, op)
        for index in self.keys.exchanges:
            if self.keys_by != "gather":
                raise DegreesError(
                    f"context={self.ranks}: {located(self.graph, index)} is attention in several ops, whose keys go in "
                    "no ring, but are gathered"
                )
            op = draft.replaced.get(index, [self.graph.ops[index]])[0]
            draft.replaced[index] = self._exchanging(draft, index, op)
        return draft.finished()

    def _carries(self, tensor: int) -> bool:
        return self.axis in self.analysis.all_leaves(tensor)

    def _whole_islands(self) -> set[int]:
        """Constant ops that need whole sequences, or make masks and keys, and those whose results they read."""
        graph, free, keys = self.graph, self.free, self.keys
        needs = self.analysis.axes.needs(self.axis)
        wanted = {index for index in needs if index in free and not _counts_tokens(graph, index, free)}
        wanted |= {i for i in free if any(len(keys.dimensions(t)) > 1 for t in graph.ops[i].outputs)}
        tensors = {graph.ops[i].inputs[slot] for i, slot in self._masks()}
        found: set[int] = set()
        for index in reversed(range(len(graph.ops))):
            if index in free and (index in wanted or not tensors.isdisjoint(graph.ops[index].outputs)):
                found.add(index)
                tensors.update(graph.ops[index].inputs)
        return found

    def _masks(self) -> list[tuple[int, int]]:
        """Operands of ops that are given and have a dimension of keys, by the ops' indexes."""
        operands = (
            (i, slot) for i, op in enumerate(self.graph.ops) if i not in self.free for slot in range(len(op.inputs))
        )
        given = self.keys.given
        return [
            (i, slot)
            for i, slot in operands
            if self.graph.ops[i].inputs[slot] in given and self.keys.reads_keys(i, slot)
        ]

    def _cut_constants(self, draft: Draft, whole: set[int]) -> None:
        """Make all other ops read their part of what is computed whole, of inputs that it reads, and of buffers."""
        graph, owner = self.graph, self.graph.index.owner
        roles = (Role.BUFFER, Role.INPUT)
        read = {owner[t] for index in whole for t in graph.ops[index].inputs}
        read |= {owner[graph.ops[index].inputs[slot]] for index, slot in self._masks()}
        given = {
            number
            for number, storage in enumerate(graph.storages)
            if storage.birth is None
            and storage.role in roles
            and (storage.role is Role.BUFFER or number in read)
            and not any(number in graph.index.writes[i] for i in graph.index.users[number])
        }
        given |= {storage for index in whole for storage in graph.index.writes[index]}
        whole |= {i for i, op in enumerate(graph.ops) if op.outputs and given.issuperset(owner[t] for t in op.outputs)}
        parts: dict[tuple[int, int], int] = {}
        kind = "mirrored_along" if self.keys_by == "zigzag" else "part_along"
        for index, op in enumerate(graph.ops):
            if index in whole:
                continue
            inputs = list(op.inputs)
            for slot, tensor in enumerate(inputs):
                dim = self._dimension(index, slot, tensor) if owner[tensor] in given else None
                if dim is not None:
                    if (tensor, dim) not in parts:
                        made = parts[tensor, dim] = draft.fresh(tensor, graph.tensors[tensor].shape)
                        draft.insert(index, stand_in(draft, kind, [tensor], [made], dim, op))
                        if tensor == self.witness:
                            self.witness = made
                    inputs[slot] = parts[tensor, dim]
            if inputs != list(op.inputs):
                draft.replaced[index] = [replace(op, inputs=tuple(inputs))]

    def _dimension(self, index: int, slot: int, tensor: int) -> int | None:
        """The dimension of a whole tensor that an op reads a part of."""
        axes, dims = self.analysis.axes, self.analysis.dims[tensor]
        found = self.keys.queries(index, slot)
        if not found:
            return None
        if len(found) > 1:
            raise DegreesError(
                f"context={self.ranks}: {located(self.graph, index)} reads a tensor of shape "
                f"{self.graph.tensors[tensor].shape} that has the sequence twice, and no softmax says which are keys"
            )
        if len(axes.leaves([dims[found[0]]])) > 1:
            raise DegreesError(
                f"context={self.ranks}: {located(self.graph, index)} reads whole sequences in operand {slot}, of shape "
                f"{self.graph.tensors[tensor].shape}, of which no part is one slice"
            )
        return found[0]

    def _gathering(self, draft: Draft, index: int, op: Op) -> list[Op]:
        """Attention over gathered keys and values, whose gradients are scattered."""
        names = holes_of(self.graph.calls[op.call])
        query, key, value = (op.inputs[names.index(name)] for name in ("query", "key", "value"))
        if not self._carries(key) and not self._carries(value):
            return [op]
        if not self._carries(query):
            where = located(self.graph, index)
            raise DegreesError(f"context={self.ranks}: {where} reads keys of the sequence with queries of another one")
        keys = {slot: 2 for slot, name in enumerate(names) if name in ("key", "value")}
        backward = base_name(self.graph.calls[op.call].op).endswith("backward")
        return _around(draft, op, keys, dict.fromkeys(op.outputs[1:3] if backward else (), 2))

    def _exchanging(self, draft: Draft, index: int, op: Op) -> list[Op]:
        """A product outside a fused kernel: over gathered keys or values, of which gradients are scattered."""
        gathered, scattered = self.keys.exchanges[index]
        if len(gathered) + (scattered is not None) != 1:
            raise DegreesError(
                f"context={self.ranks}: {located(self.graph, index)} multiplies tokens of a sequence with each other, "
                "and no softmax says which are keys"
            )
        return _around(draft, op, gathered, {} if scattered is None else {op.outputs[0]: scattered})

    def checked(self, whole: Graph, analysis: Analysis) -> Axis:
        """The axis to divide, once all ops but those that have been seen to work on parts of it."""
        axis = analysis.axes.leaves([analysis.dims[self.witness][self.dimension]])[0]
        kernels, free = set(self.attention(whole)), constants(whole)

        def allowed(index: int) -> bool:
            return index in kernels or _of_own_tokens(whole, index, free) or _counts_tokens(whole, index, free)

        for why in analysis.reasons(axis, allowed):
            advice = (
                ", as the model keeps keys and values: build it with use_cache=False" if f"({_CACHE}:" in why else ""
            )
            raise DegreesError(f"context={self.ranks} does not divide this step: {why}{advice}")
        for entry in whole.named:
            if entry.role is Role.PARAMETER and axis in analysis.all_leaves(entry.tensor):
                shape = whole.tensors[entry.tensor].shape
                raise DegreesError(
                    f"context={self.ranks}: the parameter {entry.name} {shape} has the sequence as an axis"
                )
        for index, partials in analysis.partials.items():
            op = whole.ops[index]
            for each in partials:
                alone = analysis.axes.leaves(each.axes) == [axis] and len(whole.tensors[op.inputs[0]].shape) > 2
                if op.phase is Phase.FORWARD and alone and not by_part(whole, index):
                    raise DegreesError(f"context={self.ranks}: {located(whole, index)} reduces each sequence")
        return axis


def _around(draft: Draft, op: Op, gathered: Mapping[int, int], scattered: Mapping[int, int]) -> list[Op]:
    """``op`` on operands that are gathered before it, and its results that are scattered after it, each with the
    dimension, which is one for all."""
    whole = {t: draft.fresh(t, draft.tensors[t].shape) for t in dict.fromkeys(op.inputs[slot] for slot in gathered)}
    raw = {tensor: draft.twin(tensor) for tensor in scattered}
    inputs = tuple(whole[tensor] if slot in gathered else tensor for slot, tensor in enumerate(op.inputs))
    ops = [replace(op, inputs=inputs, outputs=tuple(raw.get(tensor, tensor) for tensor in op.outputs))]
    if whole:
        ops.insert(0, stand_in(draft, "gather_along", [*whole], [*whole.values()], min(gathered.values()), op))
    if raw:
        ops.append(stand_in(draft, "scatter_along", [*raw.values()], [*raw], min(scattered.values()), op))
    return ops


def _of_own_tokens(graph: Graph, index: int, free: Collection[int]) -> bool:
    """Return whether a rank does an op with its own tokens alone.

    A routing whose indices are made of inputs and buffers takes positions, not tokens; statistics of a batch would be
    those of a part of each sequence.
    """
    op = graph.ops[index]
    if index < 0 or not by_part(graph, index) or "batch_norm" in graph.calls[op.call].op:
        return False
    named = zip(holes_of(graph.calls[op.call]), op.inputs, strict=True)
    indices = [tensor for name, tensor in named if name in ("index", "indices")]
    return given_tensors(graph, free).isdisjoint(indices)


def _counts_tokens(graph: Graph, index: int, free: Collection[int]) -> bool:
    """Return whether an op numbers the rows of a routing, which each rank numbers from its own first one."""
    if index < 0 or base_name(graph.calls[graph.ops[index].call].op) != "arange":
        return False
    readers = [i for tensor in graph.ops[index].outputs for i, op in enumerate(graph.ops) if tensor in op.inputs]
    return bool(readers) and all(
        base_name(graph.calls[graph.ops[i].call].op).startswith(PLACED) and _of_own_tokens(graph, i, free)
        for i in readers
    )
