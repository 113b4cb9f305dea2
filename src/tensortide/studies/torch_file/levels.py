"""Predicted bytes over a step whose modules are checkpointed, as changes of those of the recorded step.

Time has two instants per op: 2*i is right before op i, when what is due then is recomputed; 2*i + 1 is during op i. A
checkpointed module is a change of the level at some instants; changes of disjoint modules add up. The prediction guides
a search: what a file takes in truth is captured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensortide.graph.effects import draws_random, only_allocates
from tensortide.graph.model import Graph, Phase
from tensortide.memory.lifetimes import Residence, lifetimes, residences
from tensortide.memory.workspace import workspace_bytes
from tensortide.studies.torch_file.choice import Kept
from tensortide.studies.torch_file.regions import CAST, Call, Region

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Variant:
    """A checkpointed module, with those inside it: how it changes the level from instant to instant (``at``,
    ``change``), how high recomputation rises above it at some instants (``peaks``, ``spikes``), and its time."""

    at: Ints
    change: Ints
    peaks: Ints
    spikes: Ints
    time_ns: int


@dataclass
class _Edits:
    at: list[int] = field(default_factory=list)
    change: list[int] = field(default_factory=list)

    def held(self, nbytes: int, start: int, end: int) -> None:
        """``nbytes`` more in the instants from ``start`` to ``end``."""
        if start < end:
            self.at += [start, end]
            self.change += [nbytes, -nbytes]


class Levels:
    """Level of the recorded step ``graph`` on ``device``, and changes of it."""

    def __init__(self, graph: Graph, device: str, durations_ns: Sequence[int], *, workspace: bool = True) -> None:
        self.graph, self.durations_ns = graph, durations_ns
        self.facts = graph.index
        self.residence = residences(graph)
        lives = lifetimes(graph, "eager")
        self.deaths = [int(death) for death in lives.deaths]
        self.nbytes = [
            int(storage.nbytes) if storage.device == device and residence is not Residence.NEVER else 0
            for storage, residence in zip(graph.storages, self.residence, strict=True)
        ]
        self.workspace = [int(nbytes) for nbytes in workspace_bytes(graph, device, workspace)]
        edits = _Edits()
        for storage, nbytes in enumerate(self.nbytes):
            birth = int(lives.births[storage])
            edits.held(nbytes, max(0, 2 * birth + 1), 2 * self.deaths[storage])
        for op, nbytes in enumerate(self.workspace):
            edits.held(nbytes, 2 * op + 1, 2 * op + 2)
        self._size = 2 * len(graph) + 4
        self._recorded = self._array(edits)
        self._of_calls: dict[tuple[str, int], dict[int, list[int]]] = {}
        self._variants: dict[tuple[str, frozenset[int], tuple[str, ...]], Variant] = {}

    def _array(self, edits: _Edits) -> Ints:
        found = np.zeros(self._size, np.int64)
        np.add.at(found, np.array(edits.at, np.int64), np.array(edits.change, np.int64))
        return found

    def level(self, variants: Sequence[Variant]) -> Ints:
        """Bytes at every instant with ``variants``."""
        changes = self._recorded.copy()
        for variant in variants:
            np.add.at(changes, variant.at, variant.change)
        level: Ints = np.cumsum(changes)
        for variant in variants:
            np.add.at(level, variant.peaks, variant.spikes)
        return level

    def variant(self, region: Region, kept: frozenset[int] = frozenset(), inner: Sequence[Region] = ()) -> Variant:
        """``region`` checkpointed, with the results of the ops ``kept`` and checkpointed modules ``inner``; derived
        once."""
        key = region.path, kept, tuple(each.path for each in inner)
        if key not in self._variants:
            self._variants[key] = self._variant(region, kept, inner)
        return self._variants[key]

    def _variant(self, region: Region, kept: frozenset[int], inner: Sequence[Region]) -> Variant:
        edits, spikes, time_ns = _Edits(), dict[int, int](), 0
        for call in region.calls:
            parts = [(one, each) for each in inner for one in each.calls if one.ops[0] in call.ops]
            later = {  # recomputed with an inner module
                storage: one.first
                for one, each in parts
                for storage, gradients in self._saved(one, each).items()
                if gradients == self._saved(call, region).get(storage)
            }
            self._first_pass(edits, call, region, kept, later)
            self._inputs(edits, call)
            for one, _ in parts:
                self._inputs(edits, one, call)
            for one, each in ((call, region), *parts):
                again = self.recomputed(one, each, kept)
                resident = self._saved(one, each).keys() - (later if one is call else ())
                spikes[2 * one.first] = max(spikes.get(2 * one.first, 0), self._spike(again, resident))
                time_ns += sum(self.durations_ns[op] for op in again)
        changes = np.array(edits.at, np.int64), np.array(edits.change, np.int64)
        return Variant(*changes, np.array([*spikes], np.int64), np.array([*spikes.values()], np.int64), time_ns)

    def _saved(self, call: Call, region: Region) -> dict[int, list[int]]:
        """By storage that ``call`` makes and its gradient ops use, these ops; derived once."""
        if (key := (region.path, call.ops[0])) not in self._of_calls:
            found = {storage: [*self._own_gradients(call, region, storage)] for storage in self._born(call)}
            self._of_calls[key] = {storage: gradients for storage, gradients in found.items() if gradients}
        return self._of_calls[key]

    def _own_gradients(self, call: Call, region: Region, storage: int) -> Iterator[int]:
        """Gradient ops of the module that use ``storage``."""
        for user in self.facts.users[storage]:
            op = self.graph.ops[user]
            is_gradient = call.first <= user <= call.last and op.phase is Phase.BACKWARD and op.module >= 0
            if is_gradient and region.covers(self.graph.modules[op.module].path):
                yield user

    def _born(self, call: Call) -> Iterator[int]:
        for op in call.ops:
            yield from self.facts.allocated[op]

    def recomputed(self, call: Call, region: Region, kept: frozenset[int]) -> tuple[int, ...]:
        """Ops that run again for ``call``: up to the last that makes something that is saved, less the kept ones."""
        last = -1
        for storage in self._saved(call, region):
            inside = [op for op in self.facts.users[storage] if op < call.end]
            last = max(last, *(op for op in inside if storage in self.facts.writes[op]), self._birth(storage))
        return tuple(op for op in call.ops if op <= last and op not in kept)

    def _birth(self, storage: int) -> int:
        birth = self.graph.storages[storage].birth
        return -1 if birth is None else birth

    def _first_pass(
        self, edits: _Edits, call: Call, region: Region, kept: frozenset[int], later: Mapping[int, int]
    ) -> None:
        """Release what the module saved early, and let it be resident again from the recomputation on: that of the
        module, or the one before a ``later`` op."""
        inside = set(call.ops)
        for storage in self._born(call):
            nbytes, death = self.nbytes[storage], self.deaths[storage]
            gradients = self._saved(call, region).get(storage)
            if self._birth(storage) in kept:
                edits.held(nbytes, 2 * death, 2 * call.first + 1)
                continue
            if not gradients:
                continue
            users = self.facts.users[storage]
            others = [user for user in users if user not in inside and user not in gradients]
            if others:
                away = max(others) + 1 if max(others) < gradients[-1] else death
            else:
                away = max(user for user in users if user in inside) + 1
            first = later.get(storage, call.first)
            back = max(first, away) if away < death else death
            edits.held(-nbytes, 2 * away, 2 * back + (back < death))
            if away > first:  # a second copy beside the first, which others still use
                edits.held(nbytes, 2 * first + 1, 2 * gradients[-1] + 2)

    def _inputs(self, edits: _Edits, call: Call, around: Call | None = None) -> None:
        """Hold what the module is given until its last gradient; what is recomputed ``around`` it, from then on."""
        facts = self.facts
        given = {s for op in call.ops for s in facts.reads[op]}.difference(self._born(call), call.gathered)
        for storage in given if around is None else given.intersection(self._born(around)):
            if self.residence[storage] is not Residence.ALWAYS and self.deaths[storage] <= call.last:
                start = 2 * self.deaths[storage]
                start = start if around is None else max(start, 2 * around.first + 1)
                edits.held(self.nbytes[storage], start, 2 * call.last + 2)

    def _spike(self, again: tuple[int, ...], resident: Collection[int]) -> int:
        """Most bytes of the ops ``again`` by themselves; ``resident`` storages stay."""
        ends: dict[int, list[int]] = {}
        runs = set(again)
        for op in again:
            for storage in self.facts.allocated[op]:
                if storage not in resident:
                    last = max([op, *(user for user in self.facts.users[storage] if user in runs)])
                    ends.setdefault(last, []).append(storage)
        level = peak = 0
        for op in again:
            level += sum(self.nbytes[storage] for storage in self.facts.allocated[op])
            peak = max(peak, level + self.workspace[op])
            level -= sum(self.nbytes[storage] for storage in ends.get(op, ()))
        return peak

    def keepable(self, region: Region, keys: Mapping[int, Kept]) -> list[tuple[float, frozenset[int]]]:
        """Ops whose results can be kept, with those of the same name in other forward passes, and after the time that
        this saves per byte, negated: no other op writes them, nothing random, no views."""
        groups: dict[Kept, set[int]] = {}
        for call in region.calls:
            for op in self.recomputed(call, region, frozenset()):
                if self._is_keepable(op):
                    groups.setdefault(keys[op], set()).add(op)
        found = []
        for ops in groups.values():
            nbytes = sum(self.nbytes[storage] for op in ops for storage in self.facts.allocated[op])
            time_ns = sum(self.durations_ns[op] for op in ops)
            if time_ns:
                found.append((-time_ns / max(nbytes, 1), frozenset(ops)))
        return found

    def _is_keepable(self, op: int) -> bool:
        facts, call = self.facts, self.graph.calls[self.graph.ops[op].call]
        made = set(facts.allocated[op])
        # Selective checkpoints count runs of an op, and autocast casts parameters anew in a recomputation.
        if not made or draws_random(call) or only_allocates(call) or call.op == CAST:
            return False
        if {facts.owner[tensor] for tensor in self.graph.ops[op].outputs} != made:
            return False
        return not any(user != op and s in facts.writes[user] for s in made for user in facts.users[s])
