"""Kept nodes with their edges as numbers, in an order in which every node comes after what it depends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tensortide.importers.tensorflow.optypes import CARRIERS, ENTERS, EXITS, NEXT, SWITCHES
from tensortide.importers.tensorflow.program import OUTSIDE, Node, Nodes, Ref
from tensortide.importers.tensorflow.reading.raw import RawGraph, RawNode, reference

PUSHES = frozenset({"StackPush", "StackPushV2", "TensorListPushBack"})
POPS = frozenset({"StackPop", "StackPopV2", "TensorListPopBack"})
_HANDLE_SOURCES = frozenset({"Stack", "StackV2", "EmptyTensorList"})
_CARRIERS = CARRIERS | {"TensorListPushBack", "TensorListPopBack"}


@dataclass(slots=True)
class Frame:
    """A while loop: the name of its frame, the loop around it, what its LoopCond reads, what bounds its trips."""

    name: str
    parent: int
    condition: Ref | None = None
    maximum: Ref | None = None


class Linked(Nodes, frozen=True, kw_only=True):
    """Nodes without outputs. ``order`` is a topological order without the back edges; ``frame`` is the loop that each
    node's output is in (OUTSIDE: none); ``stacks`` are the pushes and pops of each stack."""

    raw: RawGraph
    order: list[int]
    frames: list[Frame]
    frame: list[int]
    stacks: list[tuple[list[int], list[int]]]


def linked(raw: RawGraph, kept: Sequence[RawNode]) -> Linked:
    """Number the edges. Raises MetaGraphError for a missing input, or a cycle that is no loop."""
    number = {node.name: i for i, node in enumerate(kept)}

    def find(name: str, reader: RawNode) -> int:
        if name not in number:
            raise raw.fail(f"its input {name!r} is not in the file", reader.name)
        return number[name]

    inputs = [tuple(Ref(find(name, node), output) for name, output in node.inputs) for node in kept]
    control = [tuple(find(name, node) for name in node.control) for node in kept]
    nodes = tuple(
        Node(node.name, node.type, inputs[i], control[i], attributes=node.attributes) for i, node in enumerate(kept)
    )
    graph = Linked(
        nodes=nodes, raw=raw, order=[], frames=[], frame=[OUTSIDE] * len(nodes), stacks=_stacks(Nodes(nodes=nodes))
    )
    graph.order.extend(_order(graph))
    _find_frames(graph, number)
    return graph


def _stacks(graph: Nodes) -> list[tuple[list[int], list[int]]]:
    found: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, node in enumerate(graph.nodes):
        if node.type in PUSHES | POPS and node.inputs:
            source = graph.source(node.inputs[0], _CARRIERS).node
            if graph.nodes[source].type in _HANDLE_SOURCES:
                found[source][node.type in POPS].append(i)
    return list(found.values())


def _order(graph: Linked) -> list[int]:
    """Kahn's algorithm; ready nodes in the file's order.

    A pop waits for the pushes of its stack, and what leaves a loop for what the loop carries into its next trip.
    """
    before = [{*(ref.node for ref in node.inputs), *node.control} for node in graph.nodes]
    edges = [
        (source, i) for i, node in enumerate(graph.nodes) for source in before[i]
        if not graph.is_back_edge(node, Ref(source))
    ]  # fmt: skip
    edges += [(push, pop) for pushes, pops in graph.stacks for pop in pops for push in pushes]
    edges += [(back, i) for i, node in enumerate(graph.nodes) if node.type in EXITS for back in _carried(graph, node)]
    readers: dict[int, list[int]] = defaultdict(list)
    waiting = [0] * len(graph.nodes)
    for source, target in edges:
        readers[source].append(target)
        waiting[target] += 1
    ready = [i for i in range(len(waiting) - 1, -1, -1) if not waiting[i]]
    order: list[int] = []
    while ready:
        i = ready.pop()
        order.append(i)
        for target in reversed(readers[i]):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if len(order) < len(waiting):
        stuck = next(i for i, left in enumerate(waiting) if left)
        raise graph.raw.fail("it is part of a cycle that no NextIteration closes", _on_cycle(graph, waiting, stuck))
    return order


def _carried(graph: Linked, leaving: Node) -> list[int]:
    """Return the nodes that carry the loop variable that an Exit hands out."""
    merge = graph.nodes[graph.source(leaving.inputs[0], SWITCHES).node] if leaving.inputs else leaving
    return [ref.node for ref in merge.inputs if graph.is_back_edge(merge, ref)]


def _on_cycle(graph: Linked, waiting: list[int], start: int) -> str:
    """Return a node of the cycle that ``start`` waits for."""
    seen: set[int] = set()
    number = start
    while number not in seen:
        seen.add(number)
        node = graph.nodes[number]
        number = next((i for i in (*(ref.node for ref in node.inputs), *node.control) if waiting[i]), number)
    return graph.nodes[number].name


def _find_frames(graph: Linked, number: dict[str, int]) -> None:
    """Fill ``frames`` and ``frame``: an Enter opens its frame, an Exit leaves it, everything else stays inside."""
    opened: dict[tuple[int, str], int] = {}
    depth: dict[int, int] = {OUTSIDE: 0}
    for i in graph.order:
        node = graph.nodes[i]
        around = [graph.frame[ref.node] for ref in node.inputs if graph.nodes[ref.node].type not in NEXT]
        inside = max([*around, *(graph.frame[c] for c in node.control)], key=depth.__getitem__, default=OUTSIDE)
        if node.type in ENTERS:
            name = str(node.attributes.get("frame_name", ""))
            if (inside, name) not in opened:
                opened[inside, name] = len(graph.frames)
                depth[len(graph.frames)] = depth[inside] + 1
                most, output = reference(graph.raw.maxima.get(name, ""))
                graph.frames.append(Frame(name, inside, maximum=Ref(number[most], output) if most in number else None))
            inside = opened[inside, name]
        elif node.type in EXITS:
            if inside == OUTSIDE:
                raise graph.raw.fail("it leaves a loop that it is not in", node.name)
            inside = graph.frames[inside].parent
        elif node.type == "LoopCond" and inside != OUTSIDE:
            graph.frames[inside].condition = node.inputs[0] if node.inputs else None
        graph.frame[i] = inside
