"""Kept nodes with their edges as numbers, in an order in which every node comes after what it depends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tensortide.importers.tf1.optypes import CARRIERS, ENTERS, EXITS, MERGES, NEXT
from tensortide.importers.tf1.program import OUTSIDE, Ref
from tensortide.importers.tf1.reading.raw import RawGraph, RawNode

__all__ = ["Frame", "Linked", "linked"]

PUSHES = frozenset({"StackPush", "StackPushV2", "TensorListPushBack"})
POPS = frozenset({"StackPop", "StackPopV2", "TensorListPopBack"})
_HANDLE_SOURCES = frozenset({"Stack", "StackV2", "EmptyTensorList"})
_CARRIERS = CARRIERS | {"TensorListPushBack", "TensorListPopBack"}


@dataclass(slots=True)
class Frame:
    """A while loop: the name of its frame, the loop around it, its LoopCond (-1: it has none)."""

    name: str
    parent: int
    condition: int = -1


@dataclass(slots=True)
class Linked:
    """Nodes in the file's order with edges between their numbers. ``order`` is a topological order without the back
    edges; ``frame`` is the loop that each node's output is in (OUTSIDE: none); ``pushes`` and ``pops`` are those of
    each stack's node."""

    graph: RawGraph
    nodes: list[RawNode]
    inputs: list[tuple[Ref, ...]]
    control: list[tuple[int, ...]]
    order: list[int]
    frames: list[Frame]
    frame: list[int]
    pushes: dict[int, list[int]]
    pops: dict[int, list[int]]

    def source(self, node: int, through: Collection[str]) -> int:
        """Follow a value back through the first inputs of nodes of the types ``through``."""
        seen = set()
        while self.nodes[node].type in through and self.inputs[node] and node not in seen:
            seen.add(node)
            node = self.inputs[node][0].node
        return node


def linked(graph: RawGraph, nodes: Sequence[RawNode]) -> Linked:
    """Number the edges. Raises MetaGraphError for a missing input, or a cycle that is no loop."""
    number = {node.name: i for i, node in enumerate(nodes)}

    def find(name: str, reader: RawNode) -> int:
        if name not in number:
            raise graph.fail(f"its input {name!r} is not in the file", reader.name)
        return number[name]

    inputs = [tuple(Ref(find(name, node), output) for name, output in node.inputs) for node in nodes]
    control = [tuple(find(name, node) for name in node.control) for node in nodes]
    result = Linked(graph, list(nodes), inputs, control, [], [], [OUTSIDE] * len(nodes), {}, {})
    result.pushes, result.pops = (_by_stack(result, types) for types in (PUSHES, POPS))
    result.order = _order(result)
    _find_frames(result)
    return result


def _by_stack(graph: Linked, types: frozenset[str]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for i, node in enumerate(graph.nodes):
        if node.type in types and graph.inputs[i]:
            source = graph.source(graph.inputs[i][0].node, _CARRIERS)
            if graph.nodes[source].type in _HANDLE_SOURCES:
                found[source].append(i)
    return found


def _order(graph: Linked) -> list[int]:
    """Kahn's algorithm; ready nodes in the file's order. A pop waits for the pushes of its stack."""
    types = [node.type for node in graph.nodes]
    readers: list[list[int]] = [[] for _ in types]
    waiting = [0] * len(types)

    def edge(source: int, target: int) -> None:
        readers[source].append(target)
        waiting[target] += 1

    for i, refs in enumerate(graph.inputs):
        for source in {ref.node for ref in refs} | set(graph.control[i]):
            if not (types[i] in MERGES and types[source] in NEXT):
                edge(source, i)
    for stack, pops in graph.pops.items():
        for pop in pops:
            for push in graph.pushes.get(stack, ()):
                edge(push, pop)
    ready = [i for i in range(len(types) - 1, -1, -1) if not waiting[i]]
    order: list[int] = []
    while ready:
        i = ready.pop()
        order.append(i)
        for target in reversed(readers[i]):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if len(order) < len(types):
        stuck = next(i for i, left in enumerate(waiting) if left)
        raise graph.graph.fail("it is part of a cycle that no NextIteration closes", _on_cycle(graph, waiting, stuck))
    return order


def _on_cycle(graph: Linked, waiting: list[int], start: int) -> str:
    """Return a node of the cycle that ``start`` waits for."""
    seen: set[int] = set()
    node = start
    while node not in seen:
        seen.add(node)
        before = [ref.node for ref in graph.inputs[node]] + list(graph.control[node])
        node = next((i for i in before if waiting[i]), node)
    return graph.nodes[node].name


def _find_frames(graph: Linked) -> None:
    """Fill ``frames`` and ``frame``: an Enter opens its frame, an Exit leaves it, everything else stays inside."""
    numbers: dict[tuple[int, str], int] = {}
    depth: dict[int, int] = {OUTSIDE: 0}
    innermost: Callable[[int], int] = depth.__getitem__
    for i in graph.order:
        node = graph.nodes[i]
        around = [graph.frame[ref.node] for ref in graph.inputs[i] if graph.nodes[ref.node].type not in NEXT]
        around += [graph.frame[c] for c in graph.control[i]]
        inside = max(around, key=innermost, default=OUTSIDE)
        if node.type in ENTERS:
            key = inside, str(node.attributes.get("frame_name", ""))
            if key not in numbers:
                numbers[key] = len(graph.frames)
                graph.frames.append(Frame(key[1], inside))
                depth[numbers[key]] = depth[inside] + 1
            inside = numbers[key]
        elif node.type in EXITS:
            if inside == OUTSIDE:
                raise graph.graph.fail("it leaves a loop that it is not in", node.name)
            inside = graph.frames[inside].parent
        elif node.type == "LoopCond" and inside != OUTSIDE:
            graph.frames[inside].condition = i
        graph.frame[i] = inside
