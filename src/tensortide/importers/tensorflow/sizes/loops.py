"""Trip counts of while loops, derived from their conditions: counters that step towards a bound.

A condition is a conjunction of comparisons; each that compares a counter with something that is the same in every trip
bounds the trips, and the least bound is taken. A counter leaves its loop with a known value, from which the gradient's
loop counts back. Where part of a condition is data, the trips are a symbol: the arrays that the loop reads and writes
by its counter bound it, and what leaves the loop may be as long as something known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tensortide.expr import Expr, constant, minimum, symbol
from tensortide.importers.tensorflow.optypes import CARRIERS, ENTERS, EXITS, MERGES, SWITCHES
from tensortide.importers.tensorflow.program import OUTSIDE, Constant, Loop, Ref
from tensortide.importers.tensorflow.reading.link import Linked
from tensortide.importers.tensorflow.shapes.op import State, Tensor
from tensortide.importers.tensorflow.sizes.unify import Origin, Sizes
from tensortide.importers.trips import FAR, MIRRORED, Counter, Counting

_THROUGH = SWITCHES | {"Identity", "Cast", "StopGradient"}
_NAMES = {
    "Less": "lt", "LessEqual": "le", "Greater": "gt", "GreaterEqual": "ge", "NotEqual": "ne", "LogicalAnd": "and",
    "Add": "add", "AddV2": "add", "Sub": "sub", **dict.fromkeys((*_THROUGH, "LoopCond"), "same"),
}  # fmt: skip
"""Ops as counting knows them."""

WRITES = frozenset({"TensorArrayWriteV3", "TensorListSetItem"})
_BY_POSITION = WRITES | {"TensorArrayReadV3", "TensorListGetItem"}
"""Ops that use the element of an array that their second input names."""


_REPEATABLE = frozenset({"Max", "Min", "Maximum", "Minimum", "Add", "AddV2", "Sub"})
"""Ops of lengths whose result is equal where their inputs are."""

DEEPEST = 4
"""Lengths that are computed by more ops than this in a row are compared no further."""


@dataclass(frozen=True, slots=True)
class _Trips:
    """The runs of a loop's body; ``bound``: at most so many, because part of the condition depends on data."""

    count: Expr
    bound: bool = False


class Counters:
    """The counters of a graph's loops, as far as they follow from the ``tensors`` and the ``state`` known by now."""

    def __init__(self, graph: Linked, tensors: list[list[Tensor]], sizes: Sizes, state: State) -> None:
        self.graph, self.tensors, self.sizes, self.state = graph, tensors, sizes, state
        self._counting = Counting(self._made, self._value, self._carried, constant(0))
        self._counter = self._counting.counter
        self._forward = self._forward_loops()
        self._alike: dict[object, int] = {}
        self._uses: dict[int, list[int]] = defaultdict(list)
        for i, node in enumerate(graph.nodes):
            if node.type in _BY_POSITION and len(node.inputs) > 1:
                self._uses[graph.frame[i]].append(i)

    def loops(self) -> list[Loop]:
        """Return all loops with their trips."""
        return [
            Loop(frame.name, frame.parent, self.trips(i), self._forward.get(i, OUTSIDE))
            for i, frame in enumerate(self.graph.frames)
        ]

    def trips(self, frame: int) -> Expr:
        """Count how often a loop's body runs, as far as that is known by now; a symbol where data decide it."""
        own, source = self._told(frame), self._forward.get(frame, frame)
        if source == frame and own is None:
            source = self._alike.setdefault(self._kind(self.graph.frames[frame].condition) or frame, frame)
        if source != frame and (own is None or own.bound):
            return self.trips(source)
        name = f"trips({self.graph.frames[frame].name})"
        if own is not None and not own.bound:
            return own.count if name not in self.sizes.origins else self.sizes.equal(symbol(name), own.count)
        bounds = [*([] if own is None else [own.count]), *self._limits(frame)]
        bounds = [most for most in bounds if not self.sizes.stored(most) or self.sizes.number(most) < FAR]
        if bounds:
            return self.sizes.now(self.sizes.bounded(name, minimum(*bounds)))
        return self.sizes.now(self.sizes.new(name, None, Origin.DERIVED))

    def _kind(self, ref: Ref | None) -> object:
        """Describe a comparison of a counter with something unknown: two alike are true equally often. None: it is
        none."""
        node = None if ref is None else self.graph.nodes[self.graph.source(ref, {"Identity", "LoopCond"}).node]
        if node is None or _NAMES.get(node.type) not in MIRRORED or len(node.inputs) != 2:
            return None
        counter = self._counter(node.inputs[0])
        return None if counter is None else (node.type, counter.start, counter.step, self._meant(node.inputs[1]))

    def _meant(self, ref: Ref, depth: int = DEEPEST) -> object:
        """Describe how a value is computed; two that are computed alike are equal."""
        ref = self.graph.source(ref, _THROUGH | ENTERS)
        node, value = self.graph.nodes[ref.node], self._value(ref)
        if value is not None:
            return value
        if node.type not in _REPEATABLE or not depth:
            return ref
        return node.type, tuple(self._meant(source, depth - 1) for source in node.inputs)

    def _limits(self, frame: int) -> Iterator[Expr]:
        """Bounds of a loop's trips beside its condition: the maximum that was asked for, and the lengths of the arrays
        that it uses one element after the other."""
        maximum = self.graph.frames[frame].maximum
        limit = None if maximum is None else self._value(maximum)
        if limit is not None:
            yield self.sizes.now(limit)
        for i in self._uses[frame]:
            array = self.graph.source(self.graph.nodes[i].inputs[0], CARRIERS).node
            length, counter = self.state.lengths.get(array), self._counter(self.graph.nodes[i].inputs[1])
            if length is None or counter is None or array in self.state.growing or counter.step != 1:
                continue
            if self.graph.frame[counter.variable.node] == frame:
                # what is read ahead, under a condition, is not read in the last trip
                ahead = self._is_conditional(i) and counter.start != 0
                yield self.sizes.now(length) - counter.start + int(ahead)

    def _is_conditional(self, i: int) -> bool:
        """Tell whether a node runs in one arm of a conditional."""
        ref = self.graph.nodes[i].inputs[1]
        while (node := self.graph.nodes[ref.node]).type in _THROUGH and node.inputs:
            if (
                node.type in SWITCHES
                and self.graph.nodes[self.graph.source(node.inputs[1], _THROUGH).node].type != "LoopCond"
            ):
                return True
            ref = node.inputs[0]
        return False

    def left(self, i: int) -> Tensor:
        """Return what leaves a loop at node ``i``: with its value where it is a counter."""
        tensor, counter = self.tensors[i][0], self._counter(self.graph.nodes[i].inputs[0])
        if counter is None:
            return tensor
        trips = self.trips(self.graph.frame[counter.variable.node])
        return replace(tensor, values=(self.sizes.now(counter.start + counter.step * trips),))

    def written(self, i: int) -> Expr | None:
        """Count the elements that an array must have for what node ``i`` writes to it, if that is known."""
        inputs = self.graph.nodes[i].inputs
        if len(inputs) < 2:
            return None
        counter, value = self._counter(inputs[1]), self._value(inputs[1])
        if counter is None:
            return None if value is None else value + 1
        if not isinstance(counter.step.value, int):
            return None
        last = counter.step * (self.trips(self.graph.frame[counter.variable.node]) - 1) if counter.step.value > 0 else 0
        return self.sizes.now(counter.start + last + 1)

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

    def _most(self, ref: Ref) -> Expr | None:
        """Return what a scalar is at most: the least of which some parts are known."""
        node = self.graph.nodes[self.graph.source(ref, _THROUGH | ENTERS).node]
        if node.type != "Minimum":
            return None
        parts = [part for part in map(self._value, node.inputs) if part is not None]
        return minimum(*parts) if parts else None

    def _made(self, ref: Ref) -> tuple[str, Sequence[Ref]]:
        node = self.graph.nodes[ref.node]
        return _NAMES.get(node.type, ""), node.inputs

    def _carried(self, ref: Ref) -> tuple[Expr | None, Ref] | None:
        """Return the start of a loop variable, and the value that the next trip reads."""
        node = self.graph.nodes[ref.node]
        if node.type not in MERGES:
            return None
        enters, backs = ([r for r in node.inputs if self.graph.is_back_edge(node, r) is back] for back in (False, True))
        following = self.graph.nodes[backs[0].node].inputs if len(backs) == 1 else ()
        return (self._value(enters[0]), following[0]) if len(enters) == 1 and following else (None, ref)

    def _told(self, frame: int) -> _Trips | None:
        condition = None if frame == OUTSIDE else self.graph.frames[frame].condition
        return None if condition is None else self._bounded(condition)

    def _bounded(self, condition: Ref) -> _Trips | None:
        """Count how often a condition is true from the start."""
        parts = [self._part(part) for part in self._counting.parts(condition)]
        known = [part for part in parts if part is not None]
        loose = len(known) < len(parts) or any(part.bound for part in known)
        return _Trips(minimum(*(part.count for part in known)), loose) if known else None

    def _part(self, condition: Ref) -> _Trips | None:
        for kind, counter, other in self._counting.compared(condition):
            value = self._value(other)
            bound = value if value is not None or kind not in ("lt", "le") else self._most(other)
            count = None if bound is None else self._count(kind, counter, self.sizes.now(bound))
            return None if count is None else _Trips(count, bound=value is None)
        return None

    def _count(self, kind: str, counter: Counter[Ref], bound: Expr) -> Expr | None:
        """Count the steps of a counter until it is no longer ``kind`` than ``bound``."""
        sizes = self.sizes
        start, step = sizes.now(counter.start), sizes.number(counter.step)
        if not isinstance(step, int) or step == 0 or not sizes.stored(counter.step):
            return None
        if kind != "ne" and (kind in ("lt", "le")) != (step > 0):
            return None
        distance = bound - start if step > 0 else start - bound
        if kind in ("le", "ge"):
            distance = distance + 1
        if kind == "ne" and sizes.stored(distance):  # else the counter passes the bound and goes on
            apart = sizes.number(distance)
            if apart < 0 or apart % abs(step):
                return None
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
        """Tell whether an Enter starts the counter in the condition of its loop, which counts down."""
        condition = self.graph.frames[self.graph.frame[enter]].condition
        compared = () if condition is None else self.graph.nodes[condition.node].inputs
        for merge, _ in filter(None, map(self._counting.shifted, compared)):
            inputs = [ref.node for ref in self.graph.nodes[merge.node].inputs]
            steps = [
                self._counting.shifted(ref) for i in inputs if i != enter for ref in self.graph.nodes[i].inputs[:1]
            ]
            if enter in inputs and any(step is not None and step[1] == -1 for step in steps):
                return True
        return False
