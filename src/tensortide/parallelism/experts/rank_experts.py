"""The step without the experts of other ranks: their ops, parameters, gradients and states are left out.

Ops of the update over lists lose the positions of other experts, and norms over what remains are combined.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Role
from tensortide.graph.module_paths import named_after
from tensortide.parallelism.draft import Draft, compacted, replace
from tensortide.parallelism.listed import cut_down, positions_of
from tensortide.parallelism.partials import Partials
from tensortide.parallelism.rules.reductions import NORMS
from tensortide.parallelism.sites import base_name, located


def homes_of(graph: Graph, owners: Mapping[str, int]) -> dict[int, int]:
    """The rank that has each storage of experts: of parameters, whose ``owners`` are by name, their gradients and
    states."""
    names = (named_after(storage.name, owners) for storage in graph.storages)
    found = {number: owners[name] for number, name in enumerate(names) if name}
    for entry in graph.named:
        if entry.name in owners and entry.role is Role.PARAMETER:
            found[graph.index.owner[entry.tensor]] = owners[entry.name]
    return found


@dataclass(slots=True)
class RankExperts:
    """Leaves out of a draft what belongs to others; ``left_out`` are ops of their experts, ``foreign`` storages."""

    draft: Draft
    left_out: Collection[int]
    foreign: set[int]
    _shorter: dict[int, int] = field(default_factory=dict)

    def graph(self) -> Graph:
        """The Graph of the draft, without them."""
        graph = self.draft.graph
        owner = graph.index.owner
        given = {s for s in self.foreign if graph.storages[s].birth is None}
        for index, op in enumerate(graph.ops):
            if index in self.left_out:
                self.draft.replaced[index] = []
            elif index not in self.draft.replaced:
                self._meet(index, op)
        named = tuple(e for e in graph.named if owner[e.tensor] not in self.foreign)
        made = self.draft.finished(named=named)
        kept = {s for s, storage in enumerate(made.storages) if storage.birth is None and s not in given}
        used = {made.tensors[t].storage for op in made.ops for t in (*op.inputs, *op.outputs)}
        assert used.isdisjoint(given), "an op of the rank reads the experts of another"
        return compacted(made, kept)

    def _meet(self, index: int, op: Op) -> None:
        """Leave out an op on others' storages alone, and from lists their positions."""
        graph, owner = self.draft.graph, self.draft.graph.index.owner
        op = replace(op, inputs=tuple(self._shorter.get(t, t) for t in op.inputs))
        if op.inputs != graph.ops[index].inputs:
            self.draft.replaced[index] = [op]
        others = [t for t in op.inputs if self.draft.tensors[t].storage in self.foreign]
        if not others:
            return
        call = graph.calls[op.call]
        groups = positions_of(call, op)
        kept = [i for i, group in enumerate(groups) if not any(owner[t] in self.foreign for t in group)]
        if kept:
            made = cut_down(self.draft, op, kept, len(groups), self._shorter)
            self.draft.replaced[index] = [made]
            self.foreign |= {owner[t] for t in set(op.outputs) - set(made.outputs) - self._shorter.keys()}
            return
        written = {owner[op.inputs[slot]] for slot in call.mutated} - self.foreign
        if any(graph.storages[storage].birth is None for storage in written):
            raise DegreesError(f"expert: {located(graph, index)} combines values of experts of several ranks")
        self.draft.replaced[index] = []
        self.foreign |= written | {owner[t] for t in op.outputs}


def with_norms(graph: Graph, homes: Collection[int], group: str, ranks: int) -> Graph:
    """``graph`` with norms over gradients of its own experts, the storages ``homes``, combined over the ranks."""
    draft = Draft(graph)
    partials = Partials(draft, group, ranks)
    for index, op in enumerate(graph.ops):
        call = graph.calls[op.call]
        norms: dict[int, str] = {}
        if base_name(call.op) in NORMS and len(op.outputs) <= len(op.inputs):
            pairs = zip(op.outputs, op.inputs, strict=False)
            norms = {out: "norm" for out, t in pairs if graph.index.owner[t] in homes}
            given = dict(call.arguments)
            if norms and given.get("ord", given.get("p", 2)) != 2:
                raise DegreesError(f"expert: {located(graph, index)} is no Euclidean norm: it is not combined")
        partials.read(index, op, norms)
    return draft.finished()
