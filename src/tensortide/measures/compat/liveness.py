"""Live values by deeplite-profiler 1.2.5: counted by name, 4 bytes an element, without weights and inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensortide.errors import Unavailable
from tensortide.graph.model import Role
from tensortide.measures.compat.nodes import Node, NodeGraph, Traced

NORMS = frozenset(("batch_norm", "instance_norm", "layer_norm", "group_norm"))
BYTES = 4
"""Bytes of an element there, whatever its dtype."""


@dataclass(frozen=True)
class LiveNode:
    """A node, the inputs that count as read, and the values that are live as it runs."""

    node: Node
    kept: tuple[Traced, ...]
    live: tuple[Traced, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the live values."""
        return BYTES * sum(value.tensor.numel for value in self.live)


def live_nodes(traced: NodeGraph) -> tuple[LiveNode, ...]:
    """Walk over the nodes. Raises Unavailable where that tool fails: at a product of two operands."""
    nodes = [node for node in traced.nodes if not _transposes_weight(node, traced)]
    kept = [_kept(node) for node in nodes]
    uses = Counter(value.number for values in kept for value in values)
    return tuple(_walk(nodes, kept, uses))


def _walk(nodes: Sequence[Node], kept: Sequence[tuple[Traced, ...]], uses: Counter[int]) -> Iterator[LiveNode]:
    live: Counter[int] = Counter()
    values: dict[int, Traced] = {}
    for node, read in zip(nodes, kept, strict=True):
        for value in node.outputs:
            live[value.number] += uses[value.number]
            values[value.number] = value
        yield LiveNode(node, read, tuple(values[number] for number, count in live.items() if count))
        for value in read:
            if live[value.number]:
                live[value.number] -= 1


def _kept(node: Node) -> tuple[Traced, ...]:
    """The inputs that count as read."""
    given = list(node.inputs.values())
    if node.name in NORMS or "conv" in node.name:
        return tuple(given[:1])
    if "mm" in node.name:
        if len(given) < 3:
            raise Unavailable(f"not available there: it fails at products of two operands, as {node.name} is")
        return (given[1],)
    if node.name == "matmul":
        return tuple(given[:1])
    return tuple(value for value in given if len(value.tensor.shape) >= 2)


def _transposes_weight(node: Node, traced: NodeGraph) -> bool:
    if node.name not in ("t", "transpose"):
        return False
    [value] = node.inputs.values()
    return traced.graph.storages[value.tensor.storage].role is Role.PARAMETER


@dataclass(frozen=True)
class Row:
    """A row of the layer table of that tool. ``index`` has the place among the rows; there it has the place of the node
    in a graph that holds constants too."""

    index: str
    weight: list[int]
    bias: list[int]
    input_shape: list[list[int]]
    output_shape: list[list[int] | None]
    in_tensors: list[str]
    out_tensors: list[str]
    scope: str
    ram: int


_WEIGHTED = {"addmm": ("mat2", "self")}
"""Arguments that are weight and bias of a node, where they have other names."""


def layer_rows(traced: NodeGraph) -> tuple[Row, ...]:
    """Make the layer table: a row for each node. Raises Unavailable where that tool fails."""
    return tuple(_row(place, live) for place, live in enumerate(live_nodes(traced)))


def _shown(value: Traced) -> list[int] | None:
    """The shape of an output; None of one that a kernel leaves undefined, which a fake kernel makes empty."""
    return None if value.tensor.shape == (0,) else list(value.tensor.shape)


def _row(place: int, live: LiveNode) -> Row:
    node = live.node
    shown = node.name in NORMS or "conv" in node.name or node.name in _WEIGHTED
    weight, bias = _WEIGHTED.get(node.name, ("weight", "bias"))
    return Row(
        index=f"{place}_aten::{node.name}",
        weight=list(node.shape(weight) or ()) if shown else [],
        bias=list(node.shape(bias) or ()) if shown else [],
        input_shape=[list(value.tensor.shape) for value in live.kept],
        output_shape=[_shown(value) for value in node.outputs] or [None],
        in_tensors=[str(value.number) for value in live.kept],
        out_tensors=[str(value.number) for value in node.outputs],
        scope=node.module,
        ram=live.nbytes,
    )
