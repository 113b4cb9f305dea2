"""An inference forward at the level at which a tracer of calls sees it: ``linear`` and ``layer_norm`` as single nodes.

Each outermost composite call is a node, and each op outside of all calls. Values are those of static single assignment:
what a node returns is a new value, also where it is a view, or its first input changed in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensortide.errors import Unavailable
from tensortide.graph.composites import Composites
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Graph, Role, Tensor, count_slots

_OPENED = frozenset(
    f"{name}{dimensions}d" for name in ("conv", "conv_transpose") for dimensions in (1, 2, 3)
) | frozenset(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"))
"""Composite ops that the tracer looks into: what they call are the nodes."""
_LISTS = frozenset(
    (
        *(
            "split",
            "split_with_sizes",
            "unsafe_split",
            "unsafe_split_with_sizes",
            "chunk",
            "unsafe_chunk",
            "tensor_split",
        ),
        *("hsplit", "vsplit", "dsplit", "unbind", "meshgrid", "broadcast_tensors", "align_tensors", "nonzero_numpy"),
    )
)
"""Ops that return a list of tensors, which another node unpacks."""
_RENAMED = {"convolution": "_convolution"}
"""Ops whose node has the name of the function below them."""


@dataclass(frozen=True)
class Traced:
    """A value of the traced graph: its number, and the tensor that it is."""

    number: int
    tensor: Tensor


@dataclass(frozen=True)
class Node:
    """A node: its name without namespace, module path, and the ops of the Graph that it stands for.

    ``inputs`` are its tensor arguments by name, those inside lists apart (``listed``). ``outputs`` are the tensors that
    it returns; those of a list are ``unpacked`` by another node.
    """

    name: str
    module: str
    ops: range
    inputs: dict[str, Traced]
    listed: tuple[Traced, ...]
    outputs: tuple[Traced, ...]
    unpacked: tuple[Traced, ...]
    mutates: bool

    @property
    def read(self) -> tuple[Traced, ...]:
        """Every value that the node reads."""
        return (*self.inputs.values(), *self.listed)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor argument; None where it was not given."""
        return self.inputs[name].tensor.shape if name in self.inputs else None

    @property
    def elements(self) -> int:
        """Elements of the first output."""
        return self.outputs[0].tensor.numel if self.outputs else 0


@dataclass(frozen=True)
class NodeGraph:
    """The nodes in order; those whose results nothing reads are ``dead``, and a tracer leaves them out."""

    graph: Graph
    nodes: tuple[Node, ...]
    dead: tuple[Node, ...]


def node_graph(graph: Graph) -> NodeGraph:
    """Express the inference forward in ``graph`` in nodes. Raises Unavailable if its composite calls are unknown."""
    if graph.composites is None:
        raise Unavailable("the graph has no calls of composite ops: capture it again with this release")
    if any(op.phase != "forward" for op in graph.ops):
        raise Unavailable(
            "the graph is no inference forward: it has a backward or an optimizer; capture a workload that only calls "
            "the model without gradients"
        )
    nodes = _Reader(graph, graph.composites).nodes()
    return _without_dead(graph, nodes)


class _Reader:
    def __init__(self, graph: Graph, composites: Composites) -> None:
        self.graph, self.composites = graph, composites
        self.latest: dict[int, Traced] = {}
        """The newest value of each tensor."""
        self.values = 0
        self.inside: dict[int, list[int]] = {}
        for index, run in enumerate(composites.runs):
            self.inside.setdefault(run.parent, []).append(index)

    def nodes(self) -> list[Node]:
        return list(self._between(0, len(self.graph.ops), OUTSIDE))

    def _between(self, start: int, stop: int, parent: int) -> Iterator[Node]:
        """Nodes of the ops from ``start`` up to ``stop``, which ``parent`` runs."""
        for index in self.inside.get(parent, ()):
            run = self.composites.runs[index]
            yield from map(self._op, range(start, run.start))
            call = self.composites.calls[run.call]
            if _base(call) in _OPENED:
                yield from self._between(run.start, run.stop, index)
            else:
                yield self._node(call, run.inputs, run.outputs, run.module, range(run.start, run.stop))
            start = run.stop
        yield from map(self._op, range(start, stop))

    def _op(self, index: int) -> Node:
        op = self.graph.ops[index]
        return self._node(self.graph.calls[op.call], op.inputs, op.outputs, op.module, range(index, index + 1))

    def _node(self, call: Call, inputs: tuple[int, ...], outputs: tuple[int, ...], module: int, ops: range) -> Node:
        tensors = iter(inputs)
        direct: dict[str, Traced] = {}
        listed: list[Traced] = []
        for name, value in call.arguments:
            given = [next(tensors) for _ in range(count_slots(value))]
            read = [self._latest(tensor) for tensor in given if tensor != OUTSIDE]
            if value is TENSOR and read:
                direct[name] = read[0]
            else:
                listed += read
        path = "" if module == OUTSIDE else self.graph.modules[module].path
        made = {tensor: self._new(tensor) for tensor in outputs if tensor != OUTSIDE}
        returned = tuple([made[tensor] for tensor in outputs if tensor in made])
        packed = _base(call) in _LISTS
        return Node(
            name=_RENAMED.get(_base(call), _base(call)),
            module=path,
            ops=ops,
            inputs=direct,
            listed=tuple(listed),
            outputs=() if packed else returned,
            unpacked=returned if packed else (),
            mutates=bool(call.mutated),
        )

    def _latest(self, tensor: int) -> Traced:
        return self.latest.get(tensor) or self._new(tensor)

    def _new(self, tensor: int) -> Traced:
        self.latest[tensor] = made = Traced(self.values, self.graph.tensors[tensor])
        self.values += 1
        return made


def _base(call: Call) -> str:
    """The name of an op without namespace and overload."""
    return call.op.split(".")[1]


def _without_dead(graph: Graph, nodes: list[Node]) -> NodeGraph:
    """Leave out nodes whose results neither another node nor the caller of the model reads."""
    live = [node.mutates for node in nodes]
    final: dict[Tensor, int] = {}
    for node in nodes:
        final.update({value.tensor: value.number for value in (*node.outputs, *node.unpacked)})
    results = {graph.tensors[named.tensor] for named in graph.named if named.role is Role.OUTPUT}
    needed = {final[tensor] for tensor in results if tensor in final}
    for place in reversed(range(len(nodes))):
        node = nodes[place]
        made = {value.number for value in (*node.outputs, *node.unpacked)}
        live[place] = live[place] or not needed.isdisjoint(made)
        if live[place]:
            needed.update(value.number for value in node.read)
    kept = tuple(node for node, alive in zip(nodes, live, strict=True) if alive)
    return NodeGraph(graph, kept, tuple(node for node, alive in zip(nodes, live, strict=True) if not alive))
