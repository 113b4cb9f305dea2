"""One side of a comparison: a step with its costs, its memory and its times, and the same by module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from tensortide.cost import Count, ModuleTotal, Resolver, Total
from tensortide.cost.count import RECOMPUTE
from tensortide.graph.model import Graph, Op, Role, Tensor, describe
from tensortide.graph.roles import WORKSPACE
from tensortide.metrics.defaults.memory import saved_storages
from tensortide.metrics.subject import StepSubject
from tensortide.timelines import StorageTimeline
from tensortide.timelines.resident import home_of, storage_homes
from tensortide.timing import Durations

WHOLE, OUTSIDE = "(step)", "(outside)"
"""Paths of the step as a whole, and of what is in no module."""


class Amounts(msgspec.Struct, frozen=True):
    """Figures that add up over modules: with ``unknown`` ops, which no rule prices, costs are lower bounds.

    ``parameters`` are elements; ``parameter_bytes``, ``saved`` (activations kept for backward) and ``peak`` (resident
    at the peak of the step) are bytes. ``time`` is in ns, 0 without durations.
    """

    ops: int = 0
    unknown: int = 0
    flops: int = 0
    macs: int = 0
    bytes: int = 0
    parameters: int = 0
    parameter_bytes: int = 0
    saved: int = 0
    peak: int = 0
    time: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*map(int.__add__, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(*map(int.__sub__, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


NOTHING = Amounts()


class Node(msgspec.Struct, frozen=True, eq=False):
    """A module of one side: ``own`` figures, and those of the ``whole`` with the modules inside it."""

    path: str
    type: str
    own: Amounts
    whole: Amounts
    children: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2] or "(root)"

    @property
    def label(self) -> str:
        """The path, for a reader."""
        return self.path or "(root)"

    def walk(self) -> Iterator[Node]:
        """Yield this module and all inside it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


class Held(NamedTuple):
    """A tensor resident at the peak. ``name`` is that within its ``module``, or the op that made it."""

    module: str
    role: str
    name: str
    nbytes: int
    shape: str
    phase: str = ""


@dataclass(frozen=True, eq=False)
class Side:
    """A step to compare. ``graph`` has its loops written out; ``durations`` are those of its ops, where known."""

    name: str
    graph: Graph
    durations: Durations | None = None
    resolver: Resolver | None = None

    @cached_property
    def subject(self) -> StepSubject:
        """The step as metrics take it."""
        return StepSubject(self.graph, times=self.durations, name=self.name, resolver=self.resolver)

    @property
    def count(self) -> Count:
        """FLOPs and bytes of each op."""
        return self.subject.captured().count

    @property
    def memory(self) -> StorageTimeline:
        """Memory as the framework released it."""
        return self.subject.captured().memory

    @property
    def peak_op(self) -> int:
        """The op at the peak; 0 for a step without ops, of which all that exists is resident."""
        return max(0, self.memory.peak_op)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The path of the module of each op."""
        known = [module.path for module in self.graph.modules]
        return tuple(OUTSIDE if op.module < 0 else known[op.module] for op in self.graph.ops)

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """The phase of each op; recomputation is one of its own."""
        return tuple(map(phase_of, self.graph.ops))

    @cached_property
    def ops_of(self) -> dict[str, list[int]]:
        """The ops of each module, without those of modules inside it; of a conditional those of the arm that runs."""
        found: dict[str, list[int]] = defaultdict(list)
        for index in self.count.running:
            found[self.paths[index]].append(index)
        return found

    @cached_property
    def _first(self) -> dict[str, int]:
        """The first op in each module, those of modules inside it included."""
        found: dict[str, int] = {}
        for index, path in enumerate(self.paths):
            parts = path.split(".")
            for end in range(len(parts) + 1):
                found.setdefault(".".join(parts[:end]), index)
        return found

    @cached_property
    def tree(self) -> Node:
        """The step as the root of all modules: its whole figures are those of the step. Modules stand in the order in
        which they first run, as two models may register alike modules in different orders."""
        own: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for path, amounts in (*self._parameters(), *self._saved(), *self._at_peak(), *self._times()):
            own[path].update(amounts)

        def node(total: ModuleTotal) -> Node:
            inside = sorted(total.children, key=lambda child: self._first.get(child.path, len(self.graph)))
            children = tuple(map(node, inside))
            return _node(total.path, total.type, _amounts(total.exclusive, own.pop(total.path, {})), children)

        trees = [node(tree) for tree in self.count.modules]
        if all(tree.path for tree in trees) and (models := [tree for tree in trees if tree.path != OUTSIDE]):
            trees = [_node("", "", NOTHING, tuple(models)), *(tree for tree in trees if tree.path == OUTSIDE)]
        # what only tensors are in: no op runs outside a module, but a parameter or an input is there
        trees += [_node(path, "", Amounts(**amounts), ()) for path, amounts in own.items()]
        return _node(WHOLE, "", NOTHING, tuple(trees))

    @cached_property
    def at_peak(self) -> tuple[Held, ...]:
        """Tensors resident at the peak, the largest first, and the workspace of the op that runs there; they sum to the
        peak."""
        graph, memory, at = self.graph, self.memory, self.peak_op
        widest = _widest(graph)
        found = []
        for index, nbytes, birth, death in memory.storages():
            if not (birth <= at < death and nbytes):
                continue
            storage, home = graph.storages[index], self._homes[index]
            maker = None if storage.birth is None else graph.ops[storage.birth]
            name = storage.name.removeprefix(f"{home}.")
            made = "" if maker is None else graph.calls[maker.call].op
            phase = "" if maker is None else phase_of(maker)
            found.append(Held(home, storage.role.value, name or made, nbytes, widest.get(index, ""), phase))
        if len(graph) and (extra := int(memory.workspace[at])):
            op = graph.ops[at]
            found.append(Held(self.paths[at], WORKSPACE, graph.calls[op.call].op, extra, "", phase_of(op)))
        return tuple(sorted(found, key=lambda one: -one.nbytes))

    @cached_property
    def _homes(self) -> list[str]:
        """The path of the module of each storage."""
        known = [module.path for module in self.graph.modules]
        return [OUTSIDE if home < 0 else known[home] for home in storage_homes(self.graph)]

    def _parameters(self) -> Iterator[tuple[str, dict[str, int]]]:
        known = {module.path: i for i, module in enumerate(self.graph.modules)}
        seen: set[int] = set()
        for named in self.graph.named:
            if named.role is Role.PARAMETER and named.tensor not in seen:
                seen.add(named.tensor)
                tensor, home = self.graph.tensors[named.tensor], home_of(named.name, known)
                path = self.graph.modules[home].path if home >= 0 else OUTSIDE
                yield path, {"parameters": tensor.numel, "parameter_bytes": tensor.numel * tensor.itemsize}

    def _saved(self) -> Iterator[tuple[str, dict[str, int]]]:
        for index in saved_storages(self.graph):
            yield self._homes[index], {"saved": self.graph.storages[index].nbytes}

    def _at_peak(self) -> Iterator[tuple[str, dict[str, int]]]:
        return ((one.module, {"peak": one.nbytes}) for one in self.at_peak)

    def _times(self) -> Iterator[tuple[str, dict[str, int]]]:
        ns = () if self.durations is None else self.durations.ns
        return ((path, {"time": time}) for path, time in zip(self.paths, ns, strict=False))


def phase_of(op: Op) -> str:
    """Return the phase of an op; recomputation is one of its own."""
    return RECOMPUTE if op.recompute else op.phase.value


def _node(path: str, type_: str, own: Amounts, children: tuple[Node, ...]) -> Node:
    return Node(path, type_, own, sum((child.whole for child in children), own), children)


def _amounts(total: Total, held: dict[str, int] | Counter[str]) -> Amounts:
    costs = {"ops": total.ops, "unknown": total.unknown}
    return Amounts(**costs, flops=int(total.flops), macs=int(total.macs), bytes=int(total.bytes), **held)


def _widest(graph: Graph) -> dict[int, str]:
    """Describe the largest tensor in each storage; of equal ones the first, which later ones are views of."""
    widest: dict[int, Tensor] = {}
    for tensor in sorted(graph.tensors, key=lambda one: -one.region_bytes):
        widest.setdefault(tensor.storage, tensor)
    return {storage: describe(tensor) for storage, tensor in widest.items()}
