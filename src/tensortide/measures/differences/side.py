"""One side of a comparison: a step with its costs, its memory and its times, and the same by module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, NamedTuple, TypeAlias

from tensortide.cost import Count, Total
from tensortide.cost.count import phase_of
from tensortide.differences import Node, Pair
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH, Graph, Op
from tensortide.graph.roles import WORKSPACE
from tensortide.measures.subject import StepSubject
from tensortide.shown import Show
from tensortide.timelines import StorageTimeline
from tensortide.timelines.module_figures import ModuleFigures, costs_of, module_trees
from tensortide.timelines.resident import storage_homes, widest_tensors
from tensortide.timing import Durations

WHOLE = "(step)"
"""The path of the step as a whole."""
Module: TypeAlias = Node[ModuleFigures]
"""A module of one side; it is ``of`` a type."""
ModulePair: TypeAlias = Pair[ModuleFigures]
"""A module of ``a`` and its partner in ``b``, each None where there is none."""


class Held(NamedTuple):
    """A tensor resident at the peak. ``name`` is that within its ``module``, or the op that made it."""

    module: Annotated[str, Show("Module", "path")]
    role: Annotated[str, Show("Role", "role", pick=True)]
    name: str
    size_bytes: Annotated[int, Show("Bytes", sum=True)]
    shape: Annotated[str, Show(unit="code", data=True)]
    phase: str = ""


@dataclass(frozen=True, eq=False)
class Side:
    """A step to compare. ``graph`` has its loops written out; ``durations`` are those of its ops, where known."""

    name: str
    graph: Graph
    durations: Durations | None = None

    @cached_property
    def subject(self) -> StepSubject:
        """The step as metrics take it."""
        return StepSubject(self.graph, times=self.durations, name=self.name)

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
        return tuple(self.graph.module_path(op.module) for op in self.graph.ops)

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """The phase of each op; recomputation is one of its own."""
        return tuple(map(phase_of, self.graph.ops))

    def sums(self, key: Callable[[Op], str]) -> dict[str, ModuleFigures]:
        """Sum the costs and times of the ops by a key."""
        totals, times = self.count.by(key), self._times(key)
        names = dict.fromkeys([*totals, *times])
        return {name: ModuleFigures(**costs_of(totals.get(name, Total())), time_ns=times[name]) for name in names}

    def _times(self, key: Callable[[Op], str]) -> Mapping[str, int | None]:
        if self.durations is None:
            return defaultdict(lambda: None)
        sums = Counter[str]()
        for op, ns in zip(self.graph.ops, self.durations.ns, strict=False):
            sums[key(op)] += ns
        return sums

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
    def tree(self) -> Module:
        """The step as the root of all modules: its whole figures are those of the step. Modules stand in the order in
        which they first run, as two models may register alike modules in different orders."""
        times = None if self.durations is None else self.durations.ns
        trees = [self._as_run(tree) for tree in module_trees(self.count, self.memory, times)]
        nothing = ModuleFigures(time_ns=None if times is None else 0)
        models = [tree for tree in trees if tree.path != OUTSIDE_PATH]
        if models and all(tree.path != ROOT_PATH for tree in models):
            trees = [Node(ROOT_PATH, nothing, tuple(models), ROOT_PATH, of=""), *trees[len(models) :]]
        return Node(WHOLE, nothing, tuple(trees), WHOLE, of="")

    def _as_run(self, module: Module) -> Module:
        inside = sorted(module.children, key=lambda child: self._first.get(child.path, len(self.graph)))
        return replace(module, children=tuple(map(self._as_run, inside)))

    @cached_property
    def at_peak(self) -> tuple[Held, ...]:
        """Tensors resident at the peak, the largest first, and the workspace of the op that runs there; they sum to the
        peak."""
        graph, memory, at = self.graph, self.memory, self.peak_op
        widest = widest_tensors(graph)
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
        return tuple(sorted(found, key=lambda one: -one.size_bytes))

    @cached_property
    def _homes(self) -> list[str]:
        """The path of the module of each storage."""
        return [self.graph.module_path(home) for home in storage_homes(self.graph)]
