"""Differences by op: kinds of op over the whole step, phases, and the ops of matched modules beside each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.cost import PHASES
from tensortide.cost.coverage import shown
from tensortide.graph.model import describe
from tensortide.metrics.differences.join import Pair
from tensortide.metrics.differences.side import NOTHING, Amounts, Node, Side

MOST = 4_000_000
"""Longest product of two sequences of ops that are aligned; of longer ones the ops of each name are counted."""


class Group(msgspec.Struct, frozen=True):
    """Ops of one ``name`` (an op kind or a phase) in both steps. ``peaks``: the most bytes resident during any of the
    ops of a phase, None where there are none."""

    name: str
    a: Amounts
    b: Amounts
    peaks: tuple[int | None, int | None] = (None, None)

    @property
    def difference(self) -> Amounts:
        return self.b - self.a


Change: TypeAlias = Literal["added", "removed", "resized"]


class OpChange(msgspec.Struct, frozen=True):
    """Ops of one name in a matched module that only one side has, or that have other shapes there; of ``count`` alike
    ones the costs are summed. ``a`` and ``b`` are their signatures."""

    module: str
    op: str
    phase: str
    kind: Change
    a: str
    b: str
    flops: int
    bytes: int
    count: int = 1


def by_kind(a: Side, b: Side) -> tuple[Group, ...]:
    """Sum the ops of each name in both steps, the largest difference of FLOPs first, then of bytes."""
    names = [[shown(graph.calls[op.call].op) for op in graph.ops] for graph in (a.graph, b.graph)]
    groups = _groups(a, b, lambda side, i: names[side is b][i])
    return tuple(sorted(groups, key=lambda one: (-abs(one.difference.flops), -abs(one.difference.bytes))))


def by_phase(a: Side, b: Side) -> tuple[Group, ...]:
    """Sum the ops of each phase in both steps, recomputation apart, with the peaks of memory."""
    found = {group.name: group for group in _groups(a, b, lambda side, i: side.phases[i])}
    peaks = [_phase_peaks(side) for side in (a, b)]
    return tuple(
        msgspec.structs.replace(found[phase], peaks=(peaks[0].get(phase), peaks[1].get(phase)))
        for phase in PHASES
        if phase in found
    )


def _phase_peaks(side: Side) -> dict[str, int]:
    peaks: dict[str, int] = {}
    for phase, nbytes in zip(side.phases, side.memory.resident.tolist(), strict=True):
        peaks[phase] = max(nbytes, peaks.get(phase, 0))
    return peaks


def _groups(a: Side, b: Side, name: Callable[[Side, int], str]) -> list[Group]:
    sums: list[defaultdict[str, Amounts]] = [defaultdict(Amounts), defaultdict(Amounts)]
    for side, found in zip((a, b), sums, strict=True):
        counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for index in side.count.running:
            cost, total = side.count.costs[index].cost, counted[name(side, index)]
            total.update(ops=1, unknown=cost is None)
            if cost is not None:
                total.update(flops=int(cost.flops), macs=int(cost.macs), bytes=int(cost.bytes))
        for index, ns in enumerate(side.durations.ns if side.durations else ()):
            counted[name(side, index)].update(time=ns)
        found.update({one: Amounts(**total) for one, total in counted.items()})
    return [
        Group(one, sums[0].get(one, NOTHING), sums[1].get(one, NOTHING)) for one in dict.fromkeys([*sums[0], *sums[1]])
    ]


# -- inside modules ---------------------------------------------------------------------------------


class _Run(NamedTuple):
    """An op, as it is compared."""

    name: str
    phase: str
    shapes: str
    flops: int
    bytes: int


LISTED = 4
"""Tensors that a signature names on each side of its arrow."""


def _signature(tensors: Sequence[str]) -> str:
    more = len(tensors) - LISTED
    return ", ".join(tensors[:LISTED]) + (f", and {more} more" if more > 0 else "")


def changed_ops(a: Side, b: Side, root: Pair) -> tuple[OpChange, ...]:
    """Align the ops of matched modules, phase by phase, and list those that differ; of those of one module, name and
    signature there is one row."""
    seen: Counter[OpChange] = Counter()
    for pair in root.walk():
        if pair.a is None or pair.b is None:
            continue
        runs = _runs(a, pair.a), _runs(b, pair.b)
        if runs[0] != runs[1]:
            seen.update(OpChange(pair.label, *change) for change in _changes(*runs))
    found = [
        msgspec.structs.replace(one, flops=one.flops * count, bytes=one.bytes * count, count=count)
        for one, count in seen.items()
    ]
    return tuple(sorted(found, key=lambda one: (-abs(one.flops), -abs(one.bytes))))


def _runs(side: Side, node: Node) -> list[_Run]:
    graph, found = side.graph, []
    for index in sorted(side.ops_of.get(node.path, ()), key=lambda i: PHASES.index(side.phases[i])):
        op, cost = graph.ops[index], side.count.costs[index].cost
        left, right = (_signature([describe(graph.tensors[t]) for t in some]) for some in (op.inputs, op.outputs))
        text = f"{left} -> {right}".strip()
        flops, moved = (0, 0) if cost is None else (int(cost.flops), int(cost.bytes))
        found.append(_Run(shown(graph.calls[op.call].op), side.phases[index], text, flops, moved))
    return found


def _changes(a: Sequence[_Run], b: Sequence[_Run]) -> Iterator[tuple[str, str, Change, str, str, int, int]]:
    """Yield op, phase, kind, signatures, and differences of FLOPs and bytes of each op that differs."""
    for start, stop, from_, to in _gaps([(one.name, one.phase) for one in a], [(one.name, one.phase) for one in b]):
        for one in a[start:stop]:
            yield one.name, one.phase, "removed", one.shapes, "", -one.flops, -one.bytes
        for other in b[from_:to]:
            yield other.name, other.phase, "added", "", other.shapes, other.flops, other.bytes
        for one, other in zip(a[stop : stop + 1], b[to : to + 1], strict=False):
            if one != other:
                flops, moved = other.flops - one.flops, other.bytes - one.bytes
                yield one.name, one.phase, "resized", one.shapes, other.shapes, flops, moved


def _gaps(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int, int, int]]:
    """Yield, before every pair of aligned entries and at the end, what stands between it and the pair before."""
    at = (0, 0)
    for i, j in [*_pairs(a, b), (len(a), len(b))]:
        yield at[0], i, at[1], j
        at = (i + 1, j + 1)


def _pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Align two sequences: equal beginnings and ends, and between them the longest common runs."""
    head = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    room = min(len(a), len(b)) - head
    tail = next((i for i in range(room) if a[-1 - i] != b[-1 - i]), room)
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    found = [(i, i) for i in range(head)]
    if len(inner_a) * len(inner_b) <= MOST:
        for i, j, size in SequenceMatcher(None, inner_a, inner_b, autojunk=False).get_matching_blocks():
            found += ((head + i + n, head + j + n) for n in range(size))
    return found + [(len(a) - n, len(b) - n) for n in range(tail, 0, -1)]
