"""Pipeline parallelism: the Graph of every stage, with the values that cross between stages sent and received.

A value is a storage at one version. A stage that reads one that another stage wrote receives it once, into memory of
its own. What only depends on inputs and buffers is computed in every stage that needs it. After the backward pass each
stage updates its own parameters: lists of tensors are divided, and norms over all of them are combined.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tensortide.graph.model import Graph, Op, Phase, Role, Storage
from tensortide.graph.module_paths import named_after
from tensortide.parallelism.constant_ops import constants as constants_of
from tensortide.parallelism.divided import GROUP, Tail
from tensortide.parallelism.draft import Draft, Hole, allocation, compacted
from tensortide.parallelism.stages import Stages, staged
from tensortide.parallelism.tied import TiedGradient, tied_gradients, tied_group

replace = msgspec.structs.replace


class Transfer(NamedTuple):
    """A value that crosses: its bytes, from which stage to which, and the phase in which it does."""

    nbytes: int
    source: int
    target: int
    phase: Phase


class Pipeline(NamedTuple):
    """The Graphs of the stages, where each begins, and what crosses between them."""

    graphs: tuple[Graph, ...]
    stages: Stages
    transfers: tuple[Transfer, ...]


def pipelined(graph: Graph, number: int, weights: list[float] | None = None) -> Pipeline:
    """Cut ``graph`` into ``number`` stages. Raises DegreesError if it has too few modules for that."""
    stages = staged(graph, number, weights)
    builder = _Builder(graph, stages, number)
    builder.walk()
    return Pipeline(builder.graphs(), stages, tuple(builder.transfers))


@dataclass(slots=True)
class _Stage:
    """The ops of one stage, each with the index in the whole step after which it comes, and the storages it has."""

    ops: list[tuple[int, Op]] = field(default_factory=list)
    storages: dict[int, None] = field(default_factory=dict)


class _Builder:
    """Walks the step once and hands every op to its stages."""

    def __init__(self, graph: Graph, stages: Stages, number: int) -> None:
        self.graph, self.number = graph, number
        self.draft = Draft(graph)
        parameters = {entry.name for entry in graph.named if entry.role is Role.PARAMETER}
        self.tied = [
            each
            for each in tied_gradients(graph, stages.of)
            if named_after(graph.storages[each.storage].name, parameters)
        ]
        self.tail = Tail(graph, stages, number, self.draft, self.tied)
        self.firsts = self._firsts()
        self.of = stages.of
        self.stages = [_Stage() for _ in range(number)]
        self.holders: dict[int, set[int]] = {}
        self.writer: dict[int, int] = {}
        self.crossed: set[int] = set()
        self.transfers: list[Transfer] = []
        self.widest: dict[int, int] = {}
        for number_, tensor in enumerate(graph.tensors):
            known = self.widest.get(tensor.storage)
            if known is None or self._memory(known) < self._memory(number_):
                self.widest[tensor.storage] = number_

    def walk(self) -> None:
        """Hand out all ops, then make copies of updated parameters equal again."""
        constants = constants_of(self.graph, self.of)
        needed = _needed(self.graph, self.of, constants, self.tail, self.number)
        of_tied = {op: each for each in self.tied for op in (*each.sums, *each.after)}
        update = self.graph.index.backward_end
        for index, op in enumerate(self.graph.ops):
            if index == update:
                self._exchange(index)
            if index in of_tied:
                self._sum(index, op, of_tied[index])
            elif index in constants:
                for stage in sorted(needed.get(index, ())):
                    self._emit(index, op, stage, constant=True)
            elif self.of[index] is not None:
                self._emit(index, op, self.of[index] or 0)
            else:
                for stage, part in self.tail.parts(index, op):
                    self._emit(index, part, stage, constant=self.tail.shared(index))
        if update == len(self.graph.ops):
            self._exchange(update)
        self._send_updates()

    def _send_updates(self) -> None:
        """Send updated parameters to the stages that have not updated them themselves."""
        for storage, writer in self.writer.items():
            if self.draft.storages[storage].role is Role.PARAMETER:
                for stage in range(self.number):
                    if storage in self.stages[stage].storages and stage not in self.holders[storage]:
                        self._transfer(len(self.graph.ops), self.graph.ops[-1], storage, writer, stage)

    def _exchange(self, index: int) -> None:
        """All-reduce tied gradients among their stages, before the op at ``index``."""
        for parts in sorted({each.parts for each in self.tied}):
            own = [each for each in self.tied if each.parts == parts]
            tensors = tuple(Hole(each.total) for each in own)
            given, group = {"tensors": tensors}, tied_group(parts)
            like = replace(self.graph.ops[own[-1].sums[-1]], phase=Phase.OPTIMIZER)
            op = self.draft.collective("allreduce_coalesced_", given, group, "sum", like=like, async_op=True)
            for stage in parts:
                self._emit(index, op, stage)

    def _sum(self, index: int, op: Op, tied: TiedGradient) -> None:
        """Give stages their ops in the place of ``op`` on a whole tied gradient: each does it with its own, and adds
        its further contributions, where the last sum was, to its first one, whose memory is that of the gradient."""
        if index in tied.after:
            for stage in tied.parts:
                self._emit(index, op, stage)
        elif index == tied.sums[-1]:
            first: dict[int, int] = {}
            for tensor, stage in tied.contributions:
                if first.setdefault(stage, tensor) != tensor:
                    pair = {"self": Hole(tied.total), "other": Hole(tensor)}
                    added = self.draft.op("aten.add_.Tensor", pair, [tied.total], like=op)
                    self._emit(index, added, stage)

    def _firsts(self) -> dict[int, tuple[int, int]]:
        """The storages of the first contributions of stages to tied gradients, each with that of the gradient, which
        has the same layout."""
        found = {}
        for each in self.tied:
            firsts = {stage: tensor for tensor, stage in reversed(each.contributions)}
            found.update(dict.fromkeys((self.graph.tensors[t].storage for t in firsts.values()), (each.storage, 0)))
        return found

    def _emit(self, index: int, op: Op, stage: int, *, constant: bool = False) -> None:
        op = self.draft.moved(op, self.firsts) if self.firsts else op
        owner = [self.draft.tensors[t].storage for t in op.inputs]
        written = {self.draft.tensors[op.inputs[slot]].storage for slot in self.draft.calls[op.call].mutated}
        made = {self.draft.tensors[t].storage for t in op.outputs} - set(owner)
        for storage in dict.fromkeys(owner):
            holders = self.holders.get(storage)
            if holders is not None and stage not in holders and not self.tail.has_copy(storage, stage):
                self._transfer(index, op, storage, self.writer[storage], stage)
        self.stages[stage].ops.append((index, op))
        for storage in (*owner, *made):
            self.stages[stage].storages[storage] = None
        for storage in written | made:
            if constant or self.tail.has_copy(storage, stage):
                self.holders.setdefault(storage, set()).add(stage)
                self.writer.setdefault(storage, stage)
            else:
                self.holders[storage], self.writer[storage] = {stage}, stage

    def _memory(self, tensor: int) -> int:
        """Bytes of its storage that ``tensor`` reads: those it repeats, expanded or as windows, count once."""
        view = self.graph.tensors[tensor]
        return int(min(view.region_bytes, self.graph.storages[view.storage].nbytes))

    def _transfer(self, index: int, op: Op, storage: int, source: int, target: int) -> None:
        """Send the current value of ``storage`` to ``target``, which is about to read it."""
        tensor = self.widest[storage]
        view = self.draft.tensors[tensor]
        tag = len(self.transfers)
        like = replace(op, recompute=False)
        given = {"tensors": (Hole(tensor),)}
        leaving = self.draft.collective("send", given, GROUP, like=like, dst=target, tag=tag)
        self.stages[source].ops.append((index, leaving))
        if storage not in self.stages[target].storages:
            self.stages[target].ops.append((index, allocation(self.draft, tensor, like)))
        arriving = self.draft.collective("recv_", given, GROUP, like=like, src=source, tag=tag)
        self.stages[target].ops.append((index, arriving))
        self.stages[target].storages[storage] = None
        self.holders[storage].add(target)
        self.crossed.add(storage)
        nbytes = view.region_bytes
        self.transfers.append(Transfer(int(nbytes), source, target, op.phase))

    def graphs(self) -> tuple[Graph, ...]:
        """The Graph of every stage."""
        return tuple(self._graph(number, stage) for number, stage in enumerate(self.stages))

    def _graph(self, number: int, stage: _Stage) -> Graph:
        graph = self.graph
        for storage, homes in self.tail.homes.items():
            if number in homes and graph.storages[storage].birth is None:
                stage.storages[storage] = None
        storages = [replace(s, nbytes=0) if i not in stage.storages else s for i, s in enumerate(self.draft.storages)]
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for position, (_, op) in enumerate(stage.ops):
            for tensor in (*op.inputs, *op.outputs):
                first.setdefault(self.draft.tensors[tensor].storage, position)
                last[self.draft.tensors[tensor].storage] = position
        origins = [origin for origin, _ in stage.ops]
        resident = [
            self._lifetime(i, s, number, first.get(i), last.get(i), origins) if i in stage.storages else s
            for i, s in enumerate(storages)
        ]
        named = tuple(e for e in graph.named if graph.tensors[e.tensor].storage in stage.storages)
        whole = replace(
            graph,
            ops=tuple(op for _, op in stage.ops),
            calls=tuple(self.draft.calls),
            tensors=tuple(self.draft.tensors),
            storages=tuple(resident),
            named=named,
            composites=None,
        )
        return compacted(whole, kept=stage.storages.keys())

    def _lifetime(
        self, number: int, storage: Storage, stage: int, first: int | None, last: int | None, origins: list[int]
    ) -> Storage:
        """The lifetime of a storage in one stage, from its lifetime in the whole step."""
        given = number < len(self.graph.storages) and storage.birth is None
        birth = None if given else first
        end = (-1 if last is None else last) + 1
        death: int | None
        if number >= len(self.graph.storages):
            death = end
        elif storage.death is None:
            stays = birth is None or self.writer.get(number) == stage or number not in self.crossed
            death = None if stays else end
        elif number in self.crossed:
            death = end
        else:
            death = max(end, bisect.bisect_left(origins, storage.death))
        if birth is not None and death is not None:
            death = max(death, birth + 1)
        return replace(storage, birth=birth, death=death)


def _needed(
    graph: Graph, of: tuple[int | None, ...], constants: frozenset[int], tail: Tail, number: int
) -> dict[int, set[int]]:
    """The stages that need each constant op."""
    wanted: dict[int, set[int]] = {}
    found: dict[int, set[int]] = {}
    for index in reversed(range(len(graph.ops))):
        op = graph.ops[index]
        if index in constants:
            stages = {stage for tensor in op.outputs for stage in wanted.get(tensor, ())}
            for storage in graph.index.writes[index]:
                stages |= wanted.get(-1 - storage, set())
            found[index] = stages
        else:
            stage = of[index]
            stages = set(tail.stages_of(index)) if stage is None else {stage}
        for tensor in op.inputs:
            wanted.setdefault(tensor, set()).update(stages)
            wanted.setdefault(-1 - graph.tensors[tensor].storage, set()).update(stages)
    return found
