"""Ops of the update, divided among pipeline stages: each works on the parameters, gradients and states of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase, Role
from tensortide.graph.module_paths import named_after
from tensortide.parallelism.draft import Draft, replace
from tensortide.parallelism.listed import cut_down, positions_of
from tensortide.parallelism.partials import all_reduce
from tensortide.parallelism.rules.reductions import NORMS
from tensortide.parallelism.sites import base_name
from tensortide.parallelism.stages import Stages
from tensortide.parallelism.tied import TiedGradient

GROUP = "pipeline"
"""Name of the process group of pipeline parallelism."""


class Tail:
    """The ops that have no stage of their own. ``homes``: the stages of each parameter, gradient and state, and of what
    is made of them.

    A parameter is at home where it is read first, a tied one in every stage that contributes to its gradient;
    gradients and states follow by their names. Each home does the same with what it has, but for norms of gradients,
    in which the first home counts a tied one.
    """

    def __init__(
        self, graph: Graph, stages: Stages, number: int, draft: Draft, tied: Sequence[TiedGradient] = ()
    ) -> None:
        self.graph, self.draft, self.number = graph, draft, number
        self.homes = _homes(graph, stages, tied)
        self._stages: dict[int, tuple[int, ...]] = {}
        self._homes_at: dict[int, list[tuple[int, ...]]] = {}
        self._remap: list[dict[int, int]] = [{} for _ in range(number)]
        writer: dict[int, int] = {}
        for index, op in enumerate(graph.ops):
            stage = stages.of[index]
            if stage is None:
                self._meet(index, op, writer)
            else:
                writer.update(dict.fromkeys(graph.index.writes[index], stage))

    def stages_of(self, index: int) -> tuple[int, ...]:
        """The stages that execute the op at ``index``, or a part of it."""
        return self._stages[index]

    def shared(self, index: int) -> bool:
        """Return whether every stage executes the whole of the op at ``index``."""
        return self._stages[index] == tuple(range(self.number)) and index not in self._homes_at

    def has_copy(self, storage: int, stage: int) -> bool:
        """Return whether ``stage`` is one of several homes of a storage, which keep their copies equal."""
        homes = self.homes.get(storage, ())
        return len(homes) > 1 and stage in homes

    def _meet(self, index: int, op: Op, writer: dict[int, int]) -> None:
        """Find the stages of one op, and with them the homes of what it makes."""
        owner = self.graph.index.owner
        for tensor in op.inputs:
            if owner[tensor] not in self.homes and owner[tensor] in writer:
                self.homes[owner[tensor]] = (writer[owner[tensor]],)
        once = op.phase is not Phase.OPTIMIZER and base_name(self.graph.calls[op.call].op) in NORMS
        positions = self._positions(op)
        if positions:
            homes = [next((self.homes[owner[t]] for t in group if owner[t] in self.homes), (0,)) for group in positions]
            homes = [home[:1] for home in homes] if once else homes
            for group, home in zip(positions, homes, strict=True):
                for tensor in group:
                    self.homes.setdefault(owner[tensor], home)
            self._homes_at[index] = homes
            self._stages[index] = tuple(sorted({stage for home in homes for stage in home}))
            return
        found = [self.homes[owner[t]] for t in op.inputs if owner[t] in self.homes]
        own = (found[0][:1] if once else found[0]) if found else ()
        self._stages[index] = own or tuple(range(self.number))
        if own:
            for tensor in op.outputs:
                self.homes.setdefault(owner[tensor], own)

    def _positions(self, op: Op) -> list[list[int]]:
        """For an op over lists the tensors at each position of them; empty for any other op, and where its tensors are
        at home nowhere."""
        groups, owner = positions_of(self.graph.calls[op.call], op), self.graph.index.owner
        known = any(owner[t] in self.homes for group in groups for t in group)
        return groups if known else []

    def parts(self, index: int, op: Op) -> list[tuple[int, Op]]:
        """The ops that each stage executes in the place of ``op``."""
        joined = {t for remap in self._remap for t in remap}.intersection(op.inputs)
        found = []
        for stage in self._stages[index]:
            part = self._listed(index, op, stage) if index in self._homes_at else op
            remap = self._remap[stage]
            part = replace(part, inputs=tuple(remap.get(t, t) for t in part.inputs))
            if joined.isdisjoint(remap) and joined:  # nothing that is joined is at home here
                part = self._nothing(part)
            found.append((stage, part))
            if joined:
                found += [(stage, each) for each in self._combined(op, part)]
        return found

    def _listed(self, index: int, op: Op, stage: int) -> Op:
        """``op`` on the positions that are at home in ``stage``."""
        homes = self._homes_at[index]
        here = [i for i, home in enumerate(homes) if stage in home]
        return cut_down(self.draft, op, here, len(homes), self._remap[stage])

    def _nothing(self, part: Op) -> Op:
        """The op that makes zeros in the place of a norm over nothing."""
        size = self.draft.tensors[part.outputs[0]].shape
        return self.draft.factory("zeros.default", part.outputs[0], {"size": size}, like=part)

    def _combined(self, op: Op, part: Op) -> list[Op]:
        """The all-reduce after a norm over what every stage has joined of its own."""
        call = self.graph.calls[op.call]
        if base_name(call.op) not in NORMS:
            raise DegreesError(f"pipeline: {call.op} combines values of several stages in the update")
        return all_reduce(self.draft, part.outputs[0], "norm", GROUP, part)


def _homes(graph: Graph, stages: Stages, tied: Sequence[TiedGradient]) -> dict[int, tuple[int, ...]]:
    """The stages of parameters, buffers, gradients and states: of the first op that reads them, or by their names; of
    a tied parameter all that contribute to its gradient."""
    first: dict[int, int] = {}
    for index, read in enumerate(graph.index.reads):
        stage = stages.of[index]
        if stage is not None:
            for storage in read:
                first.setdefault(storage, stage)
    parameters = {e.name: graph.tensors[e.tensor].storage for e in graph.named if e.role is Role.PARAMETER}
    homes = {gradient.storage: gradient.parts for gradient in tied}
    for gradient in tied:
        if owner := named_after(graph.storages[gradient.storage].name, parameters):
            homes[parameters[owner]] = gradient.parts
    named = {name: homes.get(storage, (first.get(storage, 0),)) for name, storage in parameters.items()}
    for number, each in enumerate(graph.storages):
        if number in homes:
            continue
        if each.role in (Role.PARAMETER, Role.BUFFER):
            homes[number] = (first.get(number, 0),)
        elif each.role in (Role.GRADIENT, Role.OPTIMIZER_STATE) and (owner := named_after(each.name, named)):
            homes[number] = named[owner]
    return homes
