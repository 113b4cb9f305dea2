"""A forward and backward pass of a Graph as the joint graph that PyTorch's partitioner takes: functional, in FX.

A node stands for each op that computes, so that what the partitioner decides can be read off op by op. A write in place
yields new contents of the storage; ops that only rename memory are ``as_strided`` of what they rename. Nodes have fake
tensors for their sizes and are not run, except by the partitioner to count FLOPs.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from tensortide.errors import GraphError, PlanError
from tensortide.graph.model import OUTSIDE, TENSOR, Graph, OpView, Phase, Role
from tensortide.recorder.execute import arguments, function
from tensortide.recorder.torch_compat import FakeTensorMode, OpOverload
from tensortide.recorder.torch_dtypes import torch_dtype

STORAGE = "tensortide_storage"
"""Key of a node's meta data under which the number of its storage is."""
TANGENT = "tangents"
"""Word in the names of placeholders for gradients of results, by which the partitioner knows them."""
_SEED = "aten.ones_like.default"
"""Op that makes the gradient of a loss, with which a backward pass begins."""
_STATE = (Role.PARAMETER, Role.BUFFER, Role.GRADIENT)
_PASSES = (Phase.FORWARD, Phase.BACKWARD)


class Passes(NamedTuple):
    """A forward pass and its backward pass: the ops ``[begin, end)``, without those of other phases; the first of the
    backward pass is ``middle``."""

    begin: int
    middle: int
    end: int


class JointGraph(NamedTuple):
    """``module`` returns ``results`` values of the forward pass, then those of the backward pass. ``static``: which of
    its inputs, by place, are parameters and buffers."""

    module: GraphModule
    results: int
    static: list[int]


def passes(graph: Graph) -> tuple[Passes, ...]:
    """The pairs of passes of ``graph``, in order. A forward pass without a backward pass belongs to the next one."""
    found, begin, middle, last = [], 0, -1, -1
    for number, op in enumerate(graph.ops):
        if op.phase is Phase.BACKWARD:
            middle, last = number if middle < 0 else middle, number
        elif op.phase is Phase.FORWARD and middle >= 0:
            found.append(Passes(begin, middle, last + 1))
            begin, middle = number, -1
    if middle >= 0:
        found.append(Passes(begin, middle, last + 1))
    return tuple(found)


def joint_graph(graph: Graph, pair: Passes) -> JointGraph:
    """The joint graph of a pair of ``passes``. Raises PlanError if no gradient of a result is found in it."""
    return _Building(graph, pair).build()


def stand_in(*_: Any, **__: Any) -> None:
    """An op that has no functional form, or that a graph cannot call: it is never run."""


class _Building:
    def __init__(self, graph: Graph, pair: Passes) -> None:
        self.graph, self.pair, self.owner = graph, pair, graph.index.owner
        self.ops = [view for view in graph if pair.begin <= view.index < pair.end and view.phase in _PASSES]
        self.fx, self.fake_mode = FxGraph(), FakeTensorMode()
        self.version: Counter[int] = Counter()
        self.memory: dict[tuple[int, int], torch.Tensor] = {}
        self.nodes: dict[int, tuple[Node, int]] = {}
        """For each tensor its node, and the version of the storage that it shows."""
        self.whole: dict[int, Node] = {}
        """For each storage the node with its contents of now."""
        self.tangents: dict[int, int] = {}
        """For each tensor that is the gradient of a result the op that makes it."""

    def build(self) -> JointGraph:
        given = self._given()
        if not self.tangents:
            raise PlanError("no gradient of ones begins its backward pass")
        for number, (storage, tensor) in enumerate((*given.items(), *((self.owner[t], t) for t in self.tangents))):
            word = "primals" if number < len(given) else TANGENT
            self.whole[storage] = self._shown(self.fx.placeholder(f"{word}_{number + 1}"), tensor)
        for view in self.ops:
            if not any(self.tangents.get(tensor) == view.index for tensor in view.op.outputs):
                self._append(view)
        forward, backward = self._results()
        self.fx.output(tuple([self.whole[storage] for storage in (*forward, *backward)]))
        roles = [self.graph.storages[storage].role for storage in given]
        static = [number for number, role in enumerate(roles) if role in (Role.PARAMETER, Role.BUFFER)]
        return JointGraph(GraphModule(torch.nn.Module(), self.fx), len(forward), static)

    def _given(self) -> dict[int, int]:
        """Storages that exist before the passes, each with the tensor that is read first; the tangents are found, too.

        Where the caller gives the gradient, it is what the backward pass alone reads, beside state of the model.
        """
        given: dict[int, int] = {}
        made: set[int] = set()
        for view in self.ops:
            for tensor in view.op.inputs:
                if self.owner[tensor] not in made:
                    given.setdefault(self.owner[tensor], tensor)
            made.update(self.owner[tensor] for tensor in view.op.outputs if self.owner[tensor] not in given)
            if view.phase is Phase.BACKWARD and view.name == _SEED:
                self.tangents.update(dict.fromkeys(view.op.outputs, view.index))
        if not self.tangents:
            used = {self.owner[t] for view in self.ops if view.phase is Phase.FORWARD for t in view.op.inputs}
            late = [s for s in given if s not in used and self.graph.storages[s].role not in _STATE]
            self.tangents = {given.pop(storage): OUTSIDE for storage in late}
        return given

    def _results(self) -> tuple[list[int], list[int]]:
        """Storages that each pass leaves behind; for the forward pass losses, and whatever nothing reads, too."""
        facts, written, last = self.graph.index, dict[int, Phase](), dict[int, int]()
        inner = {view.index for view in self.ops}
        losses = {self.owner[t] for view in self.ops if view.name == _SEED for t in view.op.inputs}
        for view in self.ops:
            for storage in set(facts.writes[view.index]).difference(facts.blind[view.index]):
                written.setdefault(storage, view.phase)
                last[storage] = view.index

        def is_left(number: int) -> bool:
            storage = self.graph.storages[number]
            after = (op >= self.pair.begin and op not in inner for op in facts.users[number])
            is_read = facts.users[number][-1] > last[number]
            return storage.birth is None or storage.death is None or number in losses or not is_read or any(after)

        left = {storage: phase for storage, phase in written.items() if storage in self.whole and is_left(storage)}
        first, second = ([s for s, phase in left.items() if phase is one] for one in _PASSES)
        return first, second

    # -- nodes ----------------------------------------------------------------------------------

    def _append(self, view: OpView) -> None:
        """Append the node of an op, those of the results that it has several of, and of what it writes."""
        if not view.op.outputs and not view.call.mutated:
            return
        inputs = [self._read(tensor) for tensor in view.op.inputs]
        if view.is_view:
            bases = {self.owner[tensor]: node for tensor, node in zip(view.op.inputs, inputs, strict=True)}
            for tensor in set(view.op.outputs).difference(view.op.inputs):
                self._renamed(bases[self.owner[tensor]], tensor)
            return
        blind = self.graph.index.blind[view.index]
        written = [view.op.inputs[slot] for slot in view.call.mutated]
        written = [tensor for tensor in written if self.owner[tensor] not in blind]
        before = {self.owner[tensor]: self.whole[self.owner[tensor]] for tensor in written}
        self.version.update(before.keys())
        node = self._call(view, inputs)
        tensors = [*dict.fromkeys((*view.op.outputs, *written))]
        if view.call.returns is TENSOR and len(tensors) == 1:
            self._place(node, tensors[0], before)
            return
        node.meta["val"] = (None,) * len(tensors)
        for number, tensor in enumerate(tensors):
            self._place(self.fx.call_function(operator.getitem, (node, number)), tensor, before)

    def _call(self, view: OpView, inputs: list[Node]) -> Node:
        slots = iter(inputs)
        try:
            target = _functional(view)
            args, kwargs = arguments(view, lambda _: next(slots))  # type: ignore[arg-type, return-value]
        except GraphError:
            return self.fx.call_function(stand_in, tuple(inputs))
        return self.fx.call_function(
            target, tuple(map(_plain, args)), {name: _plain(value) for name, value in kwargs.items()}
        )

    def _place(self, node: Node, tensor: int, before: dict[int, Node]) -> None:
        """Let ``node`` be ``tensor``, and contents of its storage: of a part of it, if it was there ``before``."""
        view, storage = self.graph.tensors[tensor], self.owner[tensor]
        self.whole[storage] = self._shown(node, tensor)
        if storage in before and view.nbytes < self.graph.storages[storage].nbytes:
            where = (before[storage], node, list(view.shape), list(view.strides), view.offset)
            both = self.fx.call_function(torch.ops.aten.as_strided_scatter.default, where)
            both.meta.update({"val": self._memory(storage), STORAGE: storage})
            self.whole[storage] = both

    def _read(self, tensor: int) -> Node:
        storage = self.owner[tensor]
        node, version = self.nodes.get(tensor, (None, -1))
        return node if node is not None and version == self.version[storage] else self._renamed(None, tensor)

    def _renamed(self, base: Node | None, tensor: int) -> Node:
        """A node of ``tensor`` as a view of ``base``, or of its storage."""
        view = self.graph.tensors[tensor]
        where = (base or self.whole[view.storage], list(view.shape), list(view.strides), view.offset)
        return self._shown(self.fx.call_function(torch.ops.aten.as_strided.default, where), tensor)

    def _shown(self, node: Node, tensor: int) -> Node:
        """``node`` as that of ``tensor``, with a fake tensor like it."""
        view = self.graph.tensors[tensor]
        memory = self._memory(view.storage).untyped_storage()
        with self.fake_mode:
            value = torch.empty(0, dtype=torch_dtype(view.dtype))
            value.set_(memory, view.offset, tuple(view.shape), tuple(view.strides))
        node.meta.update({"val": value, STORAGE: view.storage})
        self.nodes[tensor] = node, self.version[view.storage]
        return node

    def _memory(self, storage: int) -> torch.Tensor:
        """Bytes of a storage in its version of now."""
        key = storage, self.version[storage]
        if key not in self.memory:
            with self.fake_mode:
                self.memory[key] = torch.empty(int(self.graph.storages[storage].nbytes), dtype=torch.uint8)
        return self.memory[key]


def _functional(view: OpView) -> Any:
    """The op of ``view``, or the one that returns what it writes in place. Raises GraphError if there is none."""
    target = function(view.call)
    if not isinstance(target, OpOverload):
        raise GraphError(f"{view.name} is an op over functions")
    if not target._schema.is_mutable:
        return target
    namespace, name, overload = view.name.split(".")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    other = getattr(packet, overload, None)
    if other is None or other is target:
        raise GraphError(f"{view.name} has no functional form")
    return other


def _plain(value: Any) -> Any:
    """``value`` as an argument of a node: devices are the CPU, and what FX cannot hold is left out."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return None if isinstance(value, torch.Tensor | torch.Generator) else value
