"""Differences by op: kinds of op over the whole step, phases, and the ops of matched modules beside each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec

from tensortide.cost import PHASES
from tensortide.cost.count import phase_of
from tensortide.cost.coverage import shown
from tensortide.differences import Matcher, Node, Pair, Partners, Together, diff, flat, grouped
from tensortide.graph.model import Op, describe
from tensortide.measures.differences.side import Module, ModulePair, Side
from tensortide.shown import Show
from tensortide.timelines.module_figures import NONE, ModuleFigures

MOST = 4_000_000
"""Longest product of two sequences of ops that are aligned; of longer ones the ops of each name are counted."""
LISTED = 4
"""Tensors that a signature names on each side of its arrow."""
X = TypeVar("X")
Group: TypeAlias = Pair[ModuleFigures]
"""The ops of one name (an op kind or a phase) in both steps."""


class PhaseAmounts(ModuleFigures, frozen=True):
    """Figures of a phase; its peak is the most bytes resident during any of its ops; without ops it has none."""

    ops: Annotated[int, Show("Ops", at_width=110)] = 0
    peak_bytes: Annotated[int | None, Show("Peak")] = None


def by_kind(a: Side, b: Side) -> tuple[Group, ...]:
    """Sum the ops of each name in both steps, the largest difference of FLOPs first, then of bytes."""
    left, right = (flat(side.sums(partial(_kind, side)), NONE) for side in (a, b))
    found = diff(left, right).children
    return tuple(sorted(found, key=lambda one: (-abs(one.difference.flops), -abs(one.difference.accessed_bytes))))


def _kind(side: Side, op: Op) -> str:
    return shown(side.graph.calls[op.call].op)


def by_phase(a: Side, b: Side) -> tuple[Pair[PhaseAmounts], ...]:
    """Sum the ops of each phase in both steps, recomputation apart, with the peaks of memory."""
    left, right = (flat(_phases(side), PhaseAmounts()) for side in (a, b))
    found = {pair.name: pair for pair in diff(left, right).children}
    return tuple(found[phase] for phase in PHASES if phase in found)


def _phases(side: Side) -> dict[str, PhaseAmounts]:
    peaks: dict[str, int] = {}
    for phase, nbytes in zip(side.phases, side.memory.resident.tolist(), strict=True):
        peaks[phase] = max(nbytes, peaks.get(phase, 0))
    sums = {phase: msgspec.structs.asdict(figures) for phase, figures in side.sums(phase_of).items()}
    return {phase: PhaseAmounts(**{**figures, "peak_bytes": peaks[phase]}) for phase, figures in sums.items()}


# -- inside modules ---------------------------------------------------------------------------------


class Called(NamedTuple):
    """An op in a ``module`` as matched: its signature names the shapes of its tensors."""

    module: str
    phase: str
    signature: str


@dataclass(frozen=True, eq=False)
class OpChange(Together[ModuleFigures]):
    """Ops of one name in matched modules that one side alone has, or that have other shapes there (``resized``)."""

    @property
    def op(self) -> Annotated[str, Show("Op", "name", fold=True)]:
        """The name of the ops."""
        return self.first.name

    @property
    def change(self) -> Annotated[str, Show(dim=True, pick=True)]:
        """The kind of change: ``added``, ``removed`` or ``resized``."""
        return "resized" if self.kind == "changed" else self.kind

    @property
    def count(self) -> Annotated[int, Show("Ops")]:
        """The number of ops."""
        return len(self.pairs)

    @property
    def phase(self) -> Annotated[str, Show("Phase")]:
        """The phase of the ops."""
        return str(self.first.node.of.phase)

    @property
    def modules(self) -> list[str]:
        """The modules that they are in."""
        return list(dict.fromkeys(one.node.of.module for one in self.pairs))

    @property
    def signatures(self) -> tuple[str, str]:
        """The signature of the first on both sides, empty where it is missing."""
        a, b = ("" if one is None else str(one.of.signature) for one in (self.first.a, self.first.b))
        return a, b


class _Aligned(Matcher[ModuleFigures]):
    """Matches the ops of a module in their order, by name and phase."""

    def inside(self, a: Module, b: Module) -> tuple[Partners[ModuleFigures], Iterable[Partners[ModuleFigures]]]:
        """Match ops at the same place of both sequences."""
        return (a, b), aligned(a.children, b.children, lambda op: (op.name, op.of.phase))

    def same(self, a: Module, b: Module, inside: Sequence[Pair[ModuleFigures]]) -> bool:
        """Tell whether two ops have the same shapes and costs."""
        return a.own == b.own and a.of == b.of


def changed_ops(a: Side, b: Side, root: ModulePair) -> tuple[OpChange, ...]:
    """Align the ops of matched modules, phase by phase, and list those that differ; of those of one module, name and
    signature there is one row."""
    differing: list[Pair[ModuleFigures]] = []
    for pair in root.walk():
        if pair.a is not None and pair.b is not None:
            left, right = (_ops(side, node.path, pair.label) for side, node in ((a, pair.a), (b, pair.b)))
            if [*map(_what, left.children)] != [*map(_what, right.children)]:
                found = diff(left, right, _Aligned()).children
                differing += (one for one in found if one.kind != "same")
    groups = grouped(differing, lambda one: (one.kind, one.a and _what(one.a), one.b and _what(one.b)))
    changes = [OpChange(group.pairs) for group in groups]
    return tuple(
        sorted(changes, key=lambda one: [-abs(one.values(name).difference) for name in ("flops", "accessed_bytes")])
    )


def _what(op: Module) -> tuple[str, ModuleFigures, Called]:
    return op.name, op.own, op.of


def _ops(side: Side, path: str, label: str) -> Module:
    """The ops of a module as its children, phase by phase."""
    graph, found = side.graph, list[Module]()
    for index in sorted(side.ops_of.get(path, ()), key=lambda i: PHASES.index(side.phases[i])):
        op, cost = graph.ops[index], side.count.costs[index].cost
        left, right = (_signature([describe(graph.tensors[t]) for t in some]) for some in (op.inputs, op.outputs))
        known = {} if cost is None else {"flops": int(cost.flops), "accessed_bytes": int(cost.bytes)}
        called = Called(label, side.phases[index], f"{left} -> {right}".strip())
        found.append(Node(_kind(side, op), ModuleFigures(ops=1, **known), of=called))
    return Node(label, NONE, tuple(found))


def _signature(tensors: Sequence[str]) -> str:
    more = len(tensors) - LISTED
    return ", ".join(tensors[:LISTED]) + (f", and {more} more" if more > 0 else "")


def aligned(a: Sequence[X], b: Sequence[X], key: Callable[[X], Hashable]) -> Iterator[tuple[X | None, X | None]]:
    """Align two sequences by a key: equal beginnings and ends, and between them the longest common runs; before each
    pair what one side alone has there."""
    left, right = [*map(key, a)], [*map(key, b)]
    head = next((i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(a), len(b)))
    room = min(len(a), len(b)) - head
    tail = next((i for i in range(room) if left[-1 - i] != right[-1 - i]), room)
    inner_a, inner_b = left[head : len(a) - tail], right[head : len(b) - tail]
    runs = [(0, 0, head)]
    if len(inner_a) * len(inner_b) <= MOST:
        blocks = SequenceMatcher(None, inner_a, inner_b, autojunk=False).get_matching_blocks()
        runs += ((head + i, head + j, size) for i, j, size in blocks)
    i, j = 0, 0
    for x, y, size in [*runs, (len(a) - tail, len(b) - tail, tail)]:
        yield from ((one, None) for one in a[i:x])
        yield from ((None, one) for one in b[j:y])
        yield from zip(a[x : x + size], b[y : y + size], strict=True)
        i, j = x + size, y + size
