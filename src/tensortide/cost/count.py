"""Count a graph: the cost of every op, and totals by phase, module and op name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TypeVar

import msgspec

from tensortide.cost.access import region
from tensortide.cost.coverage import Coverage, coverage_of, shown
from tensortide.cost.evaluate import OpCost, Resolver, evaluate, rule_for
from tensortide.cost.opcall import qualified
from tensortide.cost.parameters import ModelSizes, model_sizes
from tensortide.cost.totals import ModuleTotal, Total, chosen_arms, module_tree, total_of
from tensortide.errors import NoSuchOp, UnknownCost, check_argument
from tensortide.expr import Size
from tensortide.graph.model import Call, Graph, Op, Phase
from tensortide.graph.trips import guess_text, guessed_trips
from tensortide.shown import Shown

K = TypeVar("K", bound=Hashable)

RECOMPUTE = "recompute"
PHASES = (Phase.FORWARD.value, Phase.BACKWARD.value, RECOMPUTE, Phase.OPTIMIZER.value, Phase.OTHER.value)
"""Phases by which a Count totals. Recomputed forward ops are a phase of their own here."""


def phase_of(op: Op) -> str:
    """Phase of ``op`` in totals and reports: recomputation is one of its own."""
    return RECOMPUTE if op.recompute else op.phase.value


class Count(Shown, msgspec.Struct, frozen=True, dict=True):
    """The costs of a graph's ops, one per op, and their totals.

    ``costs`` are of one run of each op; totals have every run of an op in a loop.
    Of a conditional whose predicate is unknown every total takes the most expensive arm; ``range`` has both ends.
    """

    SECTION = "cost_table"
    graph: Graph
    costs: tuple[OpCost, ...]

    def __repr__(self) -> str:
        return f"<Count of {len(self.costs)} ops: {self.total}>"

    @functools.cached_property
    def total(self) -> Total:
        """The whole step."""
        return total_of(map(self._runs, self.running))

    @functools.cached_property
    def range(self) -> tuple[Total, Total]:
        """The totals with the cheapest and the most expensive arm of every conditional."""
        if not self.graph.branches:
            return self.total, self.total
        lowest = self._arms[1]
        return total_of(self._runs(i) for i, op in enumerate(self.graph.ops) if op.branch in lowest), self.total

    @functools.cached_property
    def by_phase(self) -> dict[str, Total]:
        """Totals of ``forward``, ``backward``, ``recompute``, ``optimizer`` and ``other``, in this order."""
        totals = self.by(phase_of)
        return {phase: totals.get(phase, Total()) for phase in PHASES}

    @functools.cached_property
    def by_op(self) -> dict[str, Total]:
        """Totals by op name, the most expensive first."""
        names = [shown(call.op) for call in self.graph.calls]
        totals = self.by(lambda op: names[op.call])
        return dict(sorted(totals.items(), key=lambda item: (-item[1].flops, -item[1].accessed_bytes)))

    @functools.cached_property
    def modules(self) -> tuple[ModuleTotal, ...]:
        """The trees of modules, in the order of the model; ops outside any module are the last tree."""
        return module_tree(self.graph, self.by(lambda op: op.module))

    @functools.cached_property
    def by_module(self) -> dict[str, ModuleTotal]:
        """Every module by its path (``""``: the root of a single model), parents first."""
        return {node.path: node for tree in self.modules for node in tree.walk()}

    def by(self, key: Callable[[Op], K]) -> dict[K, Total]:
        """Totals of the ops that share a ``key``, in order of first appearance."""
        groups: dict[K, list[tuple[OpCost, int]]] = {}
        for i in self.running:
            groups.setdefault(key(self.graph.ops[i]), []).append(self._runs(i))
        return {name: total_of(group) for name, group in groups.items()}

    def _runs(self, index: int) -> tuple[OpCost, int]:
        """The cost of an op, and how often it runs."""
        return self.costs[index], self.graph.trips(index)

    @functools.cached_property
    def coverage(self) -> Coverage:
        """Share of the step that has a rule, and the ops that have none."""
        return coverage_of(self.graph, self.costs, self.total, self.range[0])

    @functools.cached_property
    def sizes(self) -> ModelSizes:
        """Parameters, buffers, optimizer state, inputs and outputs."""
        return model_sizes(self.graph)

    def module(self, path: str) -> ModuleTotal:
        """The module at ``path``. Raises NoSuchOp."""
        found = self.by_module.get(path)
        if found is None:
            raise NoSuchOp(f"no module {path!r} in the graph")
        return found

    @functools.cached_property
    def _arms(self) -> tuple[frozenset[int], frozenset[int]]:
        groups: dict[int, list[tuple[OpCost, int]]] = {}
        for index, op in enumerate(self.graph.ops):
            groups.setdefault(op.branch, []).append(self._runs(index))
        return chosen_arms(self.graph.branches, {branch: total_of(group) for branch, group in groups.items()})

    @functools.cached_property
    def running(self) -> Sequence[int]:
        """Indexes of the ops that run in the most expensive case."""
        if not self.graph.branches:
            return range(len(self.costs))
        return [i for i, op in enumerate(self.graph.ops) if op.branch in self._arms[0]]


MISSING = (
    "`tensortide count TARGET --missing` lists them, each with a rule to complete; in Python, "
    "tensortide.cost.missing(graph)."
)
"""The way on from an error about ops without a rule."""


@dataclass(slots=True)
class KnownCosts:
    """Costs of ops of earlier Graphs by call, shapes and sharing of memory, with the numbers of the first two; all are
    asked of one resolver."""

    calls: dict[Call, int] = field(default_factory=dict)
    specs: dict[Hashable, int] = field(default_factory=dict)
    costs: dict[Hashable, OpCost] = field(default_factory=dict)


def count(
    graph: Graph, *, strict: bool = False, resolver: Resolver | None = None, known: KnownCosts | None = None
) -> Count:
    """The cost of every op of ``graph``.

    ``resolver`` is asked for ops without a rule. The cost of an op without either is unknown, and totals with it are
    lower bounds; under ``strict`` it raises UnknownCost, which lists all such ops, or the loops of which nobody knows
    how often they run. ``known``: costs of earlier Graphs, by the same resolver; those of this one are added.
    """
    costs = OpCosts(graph, resolver, known).all()
    result = Count(graph, tuple(costs))
    if strict and not result.coverage.complete:
        missing = "\n".join(f"  {group}" for group in result.coverage.missing)
        number = result.coverage.ops - result.coverage.covered
        raise UnknownCost(f"{'1 op has' if number == 1 else f'{number} ops have'} no cost rule:\n{missing}\n{MISSING}")
    if strict and (guessed := guessed_trips(graph)):
        raise UnknownCost(guess_text(guessed))
    return result


class OpCosts:
    """Evaluates each distinct (call, shapes, sharing of memory) once."""

    def __init__(self, graph: Graph, resolver: Resolver | None, known: KnownCosts | None = None) -> None:
        check_argument("resolver", resolver, (Callable, NoneType), "a function of an op, or None")
        self._graph = graph
        self._resolver = resolver
        known = known or KnownCosts()
        self._memo = known.costs
        self._calls = [known.calls.setdefault(call, len(known.calls)) for call in graph.calls]
        self._specs, self._storages, self._regions = _interned(graph, known.specs)
        self._asks = [_asks_wanted(call.op) for call in graph.calls]

    def all(self) -> list[OpCost]:
        """The costs of all ops, in order."""
        return [self.of(index, op) for index, op in enumerate(self._graph.ops)]

    def of(self, index: int, op: Op) -> OpCost:
        """The cost of ``op``, which is at ``index``."""
        tensors = op.inputs + op.outputs
        unused = self.unused(index, op)
        key = (self._calls[op.call], tuple([self._specs[t] for t in tensors]), self._sharing(tensors), unused)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = evaluate(self._graph[index], unused, self._resolver)
        return known

    def _sharing(self, tensors: tuple[int, ...]) -> Hashable:
        """Return a key of which tensors share a storage or a region, None if none do."""
        storages = [self._storages[t] for t in tensors]
        if len(set(storages)) == len(storages):
            return None
        first: dict[int, int] = {}
        regions: dict[int, int] = {}
        return tuple(
            (first.setdefault(s, len(first)), regions.setdefault(self._regions[t], len(regions)))
            for s, t in zip(storages, tensors, strict=True)
        )

    def unused(self, index: int, op: Op) -> frozenset[int]:
        """Outputs that no later op reads and that do not outlive the step; none where the op's rule does not ask."""
        if not self._asks[op.call]:
            return frozenset()
        last, storages = self._last_use, self._storages
        return frozenset(
            position
            for position, tensor in enumerate(op.outputs)
            if last[storages[tensor]] == index and self._graph.storages[storages[tensor]].death is not None
        )

    @functools.cached_property
    def _last_use(self) -> Mapping[int, int]:
        last: dict[int, int] = {}
        for index, op in enumerate(self._graph.ops):
            for tensor in op.inputs + op.outputs:
                last[self._storages[tensor]] = index
        return last


def _interned(graph: Graph, specs: dict[Hashable, int]) -> tuple[list[int], list[int], list[int]]:
    """For every tensor: the number of its shape and dtype in ``specs``, its storage, the number of its region."""
    regions: dict[Hashable, int] = {}
    tensors = graph.tensors
    return (
        [specs.setdefault((t.dtype, _exact(t.shape), t.strides), len(specs)) for t in tensors],
        [t.storage for t in tensors],
        [regions.setdefault(region(t), len(regions)) for t in tensors],
    )


def _exact(shape: tuple[int, ...]) -> Hashable:
    """A shape that is only equal to those that are equal as expressions too."""
    return tuple([n.expr if isinstance(n, Size) else n for n in shape])


def _asks_wanted(name: str) -> bool:
    rule = rule_for(qualified(name))
    return rule is not None and rule.asks_wanted
