"""Trip counts of while loops, derived from their conditions: counters that step towards a bound.

A condition is a conjunction of comparisons; each that compares a counter with something that is the same in every trip
bounds the trips, and the least bound is taken. A counter leaves its loop with a known value, from which the gradient's
loop counts back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from tensortide.expr import Expr, constant, minimum
from tensortide.importers.tf1.optypes import ENTERS, EXITS, MERGES, SWITCHES
from tensortide.importers.tf1.program import OUTSIDE, Constant, Loop, Ref
from tensortide.importers.tf1.reading.link import Linked
from tensortide.importers.tf1.shapes.op import Tensor
from tensortide.importers.tf1.sizes.unify import Origin, Sizes

_THROUGH = SWITCHES | {"Identity", "Cast", "StopGradient"}
_MIRRORED = {
    "Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual",
    "NotEqual": "NotEqual",
}  # fmt: skip
"""Comparisons, and what they are with their sides exchanged."""


@dataclass(frozen=True, slots=True)
class _Trips:
    """The runs of a loop's body; ``bound``: at most so many, because part of the condition depends on data."""

    count: Expr
    bound: bool = False


class _Counter(NamedTuple):
    """A loop variable that starts at a known value and grows by a known step."""

    merge: int
    start: Expr
    step: Expr


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a graph's loops, as far as they follow from the ``tensors`` known by now."""

    graph: Linked
    tensors: list[list[Tensor]]
    sizes: Sizes

    def loops(self) -> list[Loop]:
        """Return all loops with their trips; a symbol where those cannot be derived."""
        frames, forward = self.graph.frames, self._forward_loops()
        trips = [self._trips(i) for i in range(len(frames))]
        for i, frame in enumerate(frames):
            limit = None if trips[i] or frame.maximum is None else self._value(frame.maximum)
            trips[i] = trips[i] if limit is None else _Trips(limit, bound=True)
        for i, source in forward.items():
            own = trips[i]
            if own is None or own.bound:
                trips[i] = trips[source]
        named = [self.graph.frames[forward.get(i, i)].name for i in range(len(frames))]
        counts = [
            found.count if found else self.sizes.new(f"trips({name})", None, Origin.DERIVED)
            for found, name in zip(trips, named, strict=True)
        ]
        return [Loop(f.name, f.parent, counts[i], forward.get(i, OUTSIDE)) for i, f in enumerate(frames)]

    def left(self, i: int) -> Tensor:
        """Return what leaves a loop at node ``i``: with its value where it is a counter of a loop whose trips are
        known."""
        tensor, counter = self.tensors[i][0], self._counter(self.graph.nodes[i].inputs[0])
        trips = None if counter is None else self._trips(self.graph.frame[counter.merge])
        if counter is None or trips is None or trips.bound:
            return tensor
        return replace(tensor, values=(self.sizes.now(counter.start + counter.step * trips.count),))

    def _value(self, ref: Ref) -> Expr | None:
        """Return the value of a scalar that is the same in every trip, if it is known by now."""
        node, found = self.graph.nodes[ref.node], self.tensors[ref.node]
        if ref.output < len(found):
            values = found[ref.output].values
            return values[0] if values is not None and len(values) == 1 else None
        if (node.type in _THROUGH or node.type in ENTERS) and node.inputs:
            return self._value(node.inputs[0])
        stored = node.attributes.get("value") if node.type == "Const" else None
        numbers = (stored.values or ()) if isinstance(stored, Constant) else ()
        return constant(int(numbers[0])) if len(numbers) == 1 and isinstance(numbers[0], int) else None

    def _merge_of(self, ref: Ref) -> int:
        """Return the loop variable that a tensor of the body is, unchanged; -1: it is none."""
        node = self.graph.source(ref, _THROUGH).node
        return node if self.graph.nodes[node].type in MERGES else -1

    def _counter(self, ref: Ref) -> _Counter | None:
        """Return the counter that a tensor is, if it is one."""
        merge = self._merge_of(ref)
        if merge < 0:
            return None
        node = self.graph.nodes[merge]
        enters, backs = ([r for r in node.inputs if self.graph.is_back_edge(node, r) is back] for back in (False, True))
        if len(enters) != 1 or len(backs) != 1 or not self.graph.nodes[backs[0].node].inputs:
            return None
        start = self._value(enters[0])
        step = self._step(self.graph.nodes[backs[0].node].inputs[0], merge)
        return None if start is None or step is None else _Counter(merge, start, step)

    def _step(self, ref: Ref, merge: int) -> Expr | None:
        """Return what a tensor is more than the loop variable ``merge``."""
        node = self.graph.nodes[ref.node]
        if node.type == "Identity" and node.inputs:
            return self._step(node.inputs[0], merge)
        if node.type not in ("Add", "AddV2", "Sub") or len(node.inputs) != 2:
            return None
        left, right = node.inputs
        if node.type != "Sub" and self._merge_of(right) == merge:
            left, right = right, left
        step = self._value(right)
        if self._merge_of(left) != merge or step is None:
            return None
        return -step if node.type == "Sub" else step

    def _trips(self, frame: int) -> _Trips | None:
        condition = None if frame == OUTSIDE else self.graph.frames[frame].condition
        return None if condition is None else self._bounded(condition)

    def _bounded(self, ref: Ref) -> _Trips | None:
        """Count how often a condition is true from the start."""
        node = self.graph.nodes[ref.node]
        if node.type in ("Identity", "LoopCond") and node.inputs:
            return self._bounded(node.inputs[0])
        if node.type == "LogicalAnd":
            parts = [self._bounded(part) for part in node.inputs]
            known = [part for part in parts if part is not None]
            loose = len(known) < len(parts) or any(part.bound for part in known)
            return _Trips(minimum(*(part.count for part in known)), loose) if known else None
        if node.type not in _MIRRORED or len(node.inputs) != 2:
            return None
        for kind, (left, right) in ((node.type, node.inputs), (_MIRRORED[node.type], node.inputs[::-1])):
            counter = self._counter(left)
            if counter is not None:
                bound = self._value(right)
                count = None if bound is None else self._count(kind, counter, self.sizes.now(bound))
                return None if count is None else _Trips(count)
        return None

    def _count(self, kind: str, counter: _Counter, bound: Expr) -> Expr | None:
        """Count the steps of a counter until it is no longer ``kind`` than ``bound``."""
        sizes = self.sizes
        start, step = sizes.now(counter.start), sizes.number(counter.step)
        if not isinstance(step, int) or step == 0 or not sizes.stored(counter.step):
            return None
        if kind != "NotEqual" and kind.startswith("Less") != (step > 0):
            return None
        distance = bound - start if step > 0 else start - bound
        if kind in ("LessEqual", "GreaterEqual"):
            distance = distance + 1
        trips = -(-distance // abs(step))
        return constant(0) if sizes.stored(trips) and sizes.number(trips) < 0 else trips

    def _forward_loops(self) -> dict[int, int]:
        """Find the loop that each gradient loop retraces: the one whose counter it counts back, or whose stacks it
        pops."""
        graph, found = self.graph, dict[int, int]()
        for pushes, pops in graph.stacks:
            for backward in (graph.frame[pop] for pop in pops):
                for forward in (graph.frame[push] for push in pushes):
                    nested = OUTSIDE not in (backward, forward) and self._depth(backward) == self._depth(forward)
                    if nested and backward != forward:
                        found.setdefault(backward, forward)
        for i, node in enumerate(graph.nodes):
            if node.type in ENTERS and node.inputs:
                source = graph.nodes[node.inputs[0].node]
                if source.type in EXITS and self._counts_back(i):
                    found[graph.frame[i]] = graph.frame[source.inputs[0].node]
        return found

    def _depth(self, frame: int) -> int:
        return 0 if frame == OUTSIDE else 1 + self._depth(self.graph.frames[frame].parent)

    def _counts_back(self, enter: int) -> bool:
        """Tell whether an Enter starts the counter in the condition of its loop."""
        condition = self.graph.frames[self.graph.frame[enter]].condition
        compared = () if condition is None else self.graph.nodes[condition.node].inputs
        merges = [merge for merge in map(self._merge_of, compared) if merge >= 0]
        return any(ref.node == enter for merge in merges for ref in self.graph.nodes[merge].inputs)
