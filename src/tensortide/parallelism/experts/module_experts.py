"""Experts that are modules of their own, or lists of weights: copies of one module that do not read each other.

Parameters ``PREFIX.N.SUFFIX`` of the same shapes for each N belong to copies of one module. Layers of a model are that,
too, but each reads what the one before has made. The ops of an expert are those that read its parameters or make their
gradients, and what lies between them in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.graph.model import Graph, Op, Phase, Role
from tensortide.parallelism.experts.local_ops import SUMS, is_reshaped, is_view, readers_of
from tensortide.parallelism.sites import base_name

Weights = dict[str, frozenset[int]]
"""The storages of the parameters of each expert, by its number as it is in names."""


class Pass(NamedTuple):
    """A pass of a step: its phase, and whether it recomputes."""

    phase: Phase
    recompute: bool

    @classmethod
    def of(cls, op: Op) -> Pass:
        return cls(op.phase, op.recompute)


PASSES = (Pass(Phase.FORWARD, False), Pass(Phase.BACKWARD, True), Pass(Phase.BACKWARD, False))


@dataclass(slots=True)
class ExpertModules:
    """The experts ``NAME.0``, ``NAME.1``... of one layer of ``graph``, in order.

    ``regions``: for each pass the ops of every expert; ``inside``: tensors that they make, each with its expert.
    ``shared`` is an op of two experts, or one that reads what another has made: then they are none.
    """

    graph: Graph
    name: str
    weights: tuple[frozenset[int], ...]
    regions: dict[Pass, dict[int, int]] = field(default_factory=dict)
    inside: dict[int, int] = field(default_factory=dict)
    shared: int | None = None

    def __post_init__(self) -> None:
        owner = self.graph.index.owner
        expert = {storage: number for number, storages in enumerate(self.weights) for storage in storages}
        gradients = _gradients(self.graph, expert)
        for t, storage in enumerate(owner):
            if storage in expert:
                self.inside[t] = expert[storage]
        for each in PASSES:
            indexes = [i for i, op in enumerate(self.graph.ops) if Pass.of(op) == each]
            self.regions[each] = self._region(indexes, gradients)
        self._find_readers()

    def _find_readers(self) -> None:
        """Note an op of an expert in the forward pass that depends on what another has made."""
        graph, owner, region = self.graph, self.graph.index.owner, self.regions[PASSES[0]]
        made: dict[int, set[int]] = {}
        for i, op in enumerate(graph.ops):
            if Pass.of(op) == PASSES[0]:
                found = set[int]().union(*(made.get(owner[t], ()) for t in op.inputs))
                if i in region:
                    found.add(region[i])
                    if len(found) > 1:
                        self.shared = i
                for t in _made_by(graph, op) if found else ():
                    made.setdefault(owner[t], set()).update(found)

    def _region(self, indexes: list[int], gradients: dict[int, int]) -> dict[int, int]:
        """The ops of each expert in one pass: between those that read what is its own and those that make its own."""
        graph, index = self.graph, self.graph.index
        from_: dict[int, set[int]] = {}
        reached = {t: {number} for t, number in self.inside.items()}
        for i in indexes:
            op = graph.ops[i]
            found = set[int]().union(*(reached.get(t, ()) for t in op.inputs))
            found |= {gradients[s] for s in index.writes[i] if s in gradients}
            if found:
                from_[i] = found
                for t in _made_by(graph, op):
                    reached.setdefault(t, set()).update(found)
        reaching: dict[int, set[int]] = {}
        found_ops: dict[int, int] = {}
        for i in reversed(indexes):
            op = graph.ops[i]
            own = {self.inside[t] for t in op.inputs if t in self.inside and self._of_weights(t)}
            own |= {gradients[s] for s in index.writes[i] if s in gradients}
            to = own.union(*(reaching.get(t, ()) for t in op.outputs))
            both = (to & from_.get(i, set())) | own
            if len(both) > 1:
                self.shared = i
            if both:
                found_ops[i] = min(both)
            for t in op.inputs if to else ():
                reaching.setdefault(t, set()).update(to)
        self._grow(indexes, found_ops)
        return found_ops

    def _of_weights(self, tensor: int) -> bool:
        owner = self.graph.index.owner[tensor]
        return any(owner in storages for storages in self.weights)

    def _grow(self, indexes: list[int], region: dict[int, int]) -> None:
        """Add to a region views that one expert reads, sums and views of what it has made, and note what its ops
        make."""
        graph, owner = self.graph, self.graph.index.owner
        readers = readers_of(graph, indexes)
        for i in reversed(indexes):
            op = graph.ops[i]
            of = {region.get(j, -1) for t in op.outputs if t not in op.inputs for j in readers.get(t, ())}
            if i not in region and len(of) == 1 and min(of) >= 0 and is_reshaped(graph, op):
                region[i] = min(of)
        mixed: set[int] = set()
        for i in indexes:
            op = graph.ops[i]
            made = {None if owner[t] in mixed else self.inside.get(t) for t in op.inputs}
            (number,) = made if len(made) == 1 else (None,)
            local = base_name(graph.calls[op.call].op) in SUMS or is_view(graph, op)
            if i not in region and number is not None and local:
                region[i] = number
            if i in region:
                for t in op.outputs:
                    if t not in op.inputs:
                        self.inside[t] = region[i]
            else:
                mixed.update(graph.index.writes[i])  # in place, into what an expert has made


def _made_by(graph: Graph, op: Op) -> tuple[int, ...]:
    """The tensors that an op makes or changes."""
    return (*op.outputs, *(op.inputs[slot] for slot in graph.calls[op.call].mutated))


def _gradients(graph: Graph, expert: dict[int, int]) -> dict[int, int]:
    """The storages of the gradients of parameters of experts, each with its expert."""
    owner = graph.index.owner
    parameters = {e.name: owner[e.tensor] for e in graph.named if e.role is Role.PARAMETER}
    found: dict[int, int] = {}
    for entry in graph.named:
        storage = parameters.get(entry.name.removesuffix(".grad")) if entry.role is Role.GRADIENT else None
        if storage in expert:
            found[owner[entry.tensor]] = expert[storage]
    return found


def lists_of_modules(graph: Graph) -> dict[str, Weights]:
    """The storages of trained parameters of modules that are copies of one, by the path that they have in common: two
    or more, numbered, with parameters of the same names and shapes."""
    owner = graph.index.owner
    found: dict[str, dict[str, dict[str, tuple[int, tuple[int, ...]]]]] = {}
    for entry in graph.named:
        if entry.role is Role.PARAMETER and entry.trainable:
            parts = entry.name.split(".")
            for at in (at for at, part in enumerate(parts) if part.isdigit()):
                of = found.setdefault(".".join(parts[:at]), {}).setdefault(parts[at], {})
                of[".".join(parts[at + 1 :])] = owner[entry.tensor], tuple(graph.tensors[entry.tensor].shape)
    lists: dict[str, Weights] = {}
    for path, copies in found.items():
        kinds = {tuple((name, shape) for name, (_, shape) in sorted(each.items())) for each in copies.values()}
        if len(copies) > 1 and len(kinds) == 1:
            numbered = sorted(copies.items(), key=lambda item: int(item[0]))
            lists[path] = {number: frozenset(s for s, _ in each.values()) for number, each in numbered}
    return lists


def _joined(lists: dict[str, Weights]) -> Iterable[tuple[str, list[str]]]:
    """Yield paths with the lists in each: first those of one parent with the same numbers together, then each alone."""
    parents: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for path, weights in lists.items():
        parents.setdefault((path.rpartition(".")[0], tuple(weights)), []).append(path)
    for paths in parents.values():
        if len(paths) > 1:
            yield f"{paths[0].rpartition('.')[0]}.({'|'.join(path.rpartition('.')[2] for path in paths)})", paths
    yield from ((path, [path]) for path in lists)


def expert_modules(graph: Graph) -> list[ExpertModules]:
    """The experts of every layer, the outermost of lists in lists."""
    lists = lists_of_modules(graph)
    found: list[ExpertModules] = []
    taken: set[int] = set()
    for name, paths in _joined(lists):
        numbers = lists[paths[0]]
        weights = tuple(frozenset[int]().union(*(lists[path][number] for path in paths)) for number in numbers)
        storages = frozenset[int]().union(*weights)
        if len(storages) < sum(map(len, weights)) or not taken.isdisjoint(storages):
            continue
        made = ExpertModules(graph, name, weights)
        if made.shared is None and made.regions[PASSES[0]]:
            found.append(made)
            taken |= storages
    return found
