"""Trip counts of while loops, derived from their conditions: counters that step towards a bound.

A condition is a conjunction of comparisons; each that compares a counter with something that is the same in every trip
bounds the trips, and the least bound is taken. A counter leaves its loop with a known value, from which the gradient's
loop counts back.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensortide.expr import Expr, constant, minimum
from tensortide.importers.tf1.optypes import ENTERS, EXITS, MERGES, NEXT, SWITCHES
from tensortide.importers.tf1.program import OUTSIDE, Ref
from tensortide.importers.tf1.reading.link import Linked
from tensortide.importers.tf1.shapes.table import Tensor
from tensortide.importers.tf1.sizes.unify import Sizes

__all__ = ["Trips", "counted_exit", "forward_loops", "trip_counts"]

_THROUGH = SWITCHES | {"Identity", "Cast", "StopGradient"}


@dataclass(frozen=True, slots=True)
class Trips:
    """The runs of a loop's body; ``bound``: at most so many, because part of the condition depends on
    data."""

    count: Expr
    bound: bool = False


@dataclass(frozen=True, slots=True)
class _Counter:
    start: Expr
    step: Expr


def _value(graph: Linked, tensors: list[list[Tensor]], ref: Ref) -> Expr | None:
    """Return the value of a scalar that is the same in every trip, if it is known by now."""
    found = tensors[ref.node]
    if ref.output < len(found):
        values = found[ref.output].values
        return values[0] if values is not None and len(values) == 1 else None
    node = graph.nodes[ref.node]
    if (node.type in _THROUGH or node.type in ENTERS) and graph.inputs[ref.node]:
        return _value(graph, tensors, graph.inputs[ref.node][0])
    stored = node.attributes.get("value") if node.type == "Const" else None
    values = getattr(stored, "values", None)
    return constant(int(values[0])) if values is not None and len(values) == 1 and isinstance(values[0], int) else None


def _merge_of(graph: Linked, ref: Ref) -> int | None:
    """Return the loop variable that a tensor of the body is, unchanged."""
    node = graph.source(ref.node, _THROUGH)
    return node if graph.nodes[node].type in MERGES else None


def _counter(graph: Linked, tensors: list[list[Tensor]], ref: Ref) -> _Counter | None:
    """Return the counter that a tensor is: a loop variable that starts at a known value and grows by a known step."""
    merge = _merge_of(graph, ref)
    if merge is None:
        return None
    inputs = graph.inputs[merge]
    enters = [i for i in inputs if graph.nodes[i.node].type not in NEXT]
    backs = [i for i in inputs if graph.nodes[i.node].type in NEXT]
    if len(enters) != 1 or len(backs) != 1 or not graph.inputs[backs[0].node]:
        return None
    start = _value(graph, tensors, enters[0])
    step = _step(graph, tensors, graph.inputs[backs[0].node][0], merge)
    return None if start is None or step is None else _Counter(start, step)


def _step(graph: Linked, tensors: list[list[Tensor]], ref: Ref, merge: int) -> Expr | None:
    node = graph.nodes[ref.node]
    if node.type == "Identity" and graph.inputs[ref.node]:
        return _step(graph, tensors, graph.inputs[ref.node][0], merge)
    if node.type not in ("Add", "AddV2", "Sub") or len(graph.inputs[ref.node]) != 2:
        return None
    left, right = graph.inputs[ref.node]
    if node.type != "Sub" and _merge_of(graph, right) == merge:
        left, right = right, left
    step = _value(graph, tensors, right)
    if _merge_of(graph, left) != merge or step is None:
        return None
    return -step if node.type == "Sub" else step


def counted_exit(graph: Linked, tensors: list[list[Tensor]], sizes: Sizes, i: int) -> Tensor:
    """Return what leaves a loop at node ``i``: with its value where it is a counter of a loop whose trips are known."""
    tensor = tensors[i][0]
    ref = graph.inputs[i][0]
    counter = _counter(graph, tensors, ref)
    merge = _merge_of(graph, ref)
    if counter is None or merge is None or graph.frame[merge] == OUTSIDE:
        return tensor
    trips = _of_condition(graph, tensors, sizes, graph.frames[graph.frame[merge]].condition)
    if trips is None or trips.bound:
        return tensor
    return Tensor(tensor.shape, (sizes.now(counter.start + counter.step * trips.count),), tensor.handle)


def _of_condition(graph: Linked, tensors: list[list[Tensor]], sizes: Sizes, condition: int) -> Trips | None:
    if condition < 0 or not graph.inputs[condition]:
        return None
    return _bounded(graph, tensors, sizes, graph.inputs[condition][0])


def _bounded(graph: Linked, tensors: list[list[Tensor]], sizes: Sizes, ref: Ref) -> Trips | None:
    """Count how often a condition is true from the start."""
    node = graph.nodes[ref.node]
    inputs = graph.inputs[ref.node]
    if node.type in ("Identity", "LoopCond") and inputs:
        return _bounded(graph, tensors, sizes, inputs[0])
    if node.type == "LogicalAnd":
        parts = [_bounded(graph, tensors, sizes, part) for part in inputs]
        known = [part for part in parts if part is not None]
        if not known:
            return None
        loose = len(known) < len(parts) or any(part.bound for part in known)
        return Trips(minimum(*(part.count for part in known)), loose)
    if node.type not in _SWAPPED or len(inputs) != 2:
        return None
    left, right = inputs
    kind = node.type
    counter, bound = _counter(graph, tensors, left), _value(graph, tensors, right)
    if counter is None:
        counter, bound, kind = _counter(graph, tensors, right), _value(graph, tensors, left), _SWAPPED[kind]
    if counter is None or bound is None:
        return None
    count = _count(kind, counter, sizes.now(bound), sizes)
    return None if count is None else Trips(count)


_SWAPPED = {
    "Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual",
    "NotEqual": "NotEqual",
}  # fmt: skip


def _count(kind: str, counter: _Counter, bound: Expr, sizes: Sizes) -> Expr | None:
    start, step = sizes.now(counter.start), sizes.number(counter.step)
    if not isinstance(step, int) or step == 0 or not sizes.stored(counter.step):
        return None
    distance = bound - start if step > 0 else start - bound
    upward = kind in ("Less", "LessEqual")
    if kind != "NotEqual" and upward != (step > 0):
        return None
    if kind in ("LessEqual", "GreaterEqual"):
        distance = distance + 1
    trips = -(-distance // abs(step))
    return constant(0) if sizes.stored(trips) and sizes.number(trips) < 0 else trips


def forward_loops(graph: Linked) -> dict[int, int]:
    """Find the loop that each gradient loop retraces: the one whose counter it counts back, or whose stacks it pops."""
    found: dict[int, int] = {}
    for stack, pops in graph.pops.items():
        for pop in pops:
            for push in graph.pushes.get(stack, ()):
                backward, forward = graph.frame[pop], graph.frame[push]
                if (
                    OUTSIDE not in (backward, forward)
                    and backward != forward
                    and _depth(graph, backward) == _depth(graph, forward)
                ):
                    found.setdefault(backward, forward)
    for i, node in enumerate(graph.nodes):
        if node.type in ENTERS and graph.inputs[i]:
            source = graph.inputs[i][0].node
            if graph.nodes[source].type in EXITS and _counts_back(graph, i):
                found[graph.frame[i]] = graph.frame[graph.inputs[source][0].node]
    return found


def _depth(graph: Linked, frame: int) -> int:
    return 0 if frame == OUTSIDE else 1 + _depth(graph, graph.frames[frame].parent)


def _counts_back(graph: Linked, enter: int) -> bool:
    """Tell whether an Enter starts the counter in the condition of its loop."""
    condition = graph.frames[graph.frame[enter]].condition
    if condition < 0 or not graph.inputs[condition]:
        return False
    compare = graph.inputs[condition][0].node
    merges = [_merge_of(graph, ref) for ref in graph.inputs[compare]]
    return any(m is not None and any(ref.node == enter for ref in graph.inputs[m]) for m in merges)


def trip_counts(graph: Linked, tensors: list[list[Tensor]], sizes: Sizes) -> list[Trips | None]:
    """Return the trips of every loop, None where they cannot be derived."""
    found: list[Trips | None] = []
    forward = forward_loops(graph)
    for frame in graph.frames:
        context = graph.graph.contexts.get(frame.name)
        trips = _of_condition(graph, tensors, sizes, frame.condition)
        if trips is None and context is not None and context.maximum:
            limit = _maximum(graph, tensors, context.maximum)
            trips = None if limit is None else Trips(limit, bound=True)
        found.append(trips)
    for loop, source in forward.items():
        own = found[loop]
        if own is None or own.bound:
            found[loop] = found[source]
    return found


def _maximum(graph: Linked, tensors: list[list[Tensor]], name: str) -> Expr | None:
    node, _, output = name.rpartition(":")
    for i, candidate in enumerate(graph.nodes):
        if candidate.name == node:
            return _value(graph, tensors, Ref(i, int(output or 0)))
    return None
