"""A traced FX graph as a Graph with the Code of its ops: the joint graph of a forward and a backward pass, or one pass.

Nodes run one by one on fake tensors while a recorder watches, so that storages, views and writes in place are those of
the ops themselves. Between the passes stands one op of the caller's, which reads the outputs of the forward pass and
makes the tangents; it runs once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from tensortide.errors import RunError
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Const, Graph, Meta, Module, Op, Phase, Role, Source
from tensortide.recorder.schema import schema_of
from tensortide.recorder.torch_compat import HigherOrderOperator, OpOverload, pytree
from tensortide.run.generated.calls import Code, CodeRecorder

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)(?:\n\s*(.+))?')
_BETWEEN = "autograd.between_passes"


@dataclass(frozen=True, slots=True)
class Joint:
    """``graph`` with the ``codes`` of its ops. ``given``: names of the inputs by tensor, in order; those that are no
    tensors have none. ``between``: the op between the passes, None if there is one pass. ``outputs`` and ``gradients``:
    tensors of the results, None where one is missing. ``apart``: places of outputs that the traced function returns as
    objects of their own although they are the same tensor as an input or an output before them (``detach``)."""

    graph: Graph
    codes: Sequence[Code]
    inputs: tuple[int | None, ...]
    names: tuple[str, ...]
    between: int | None
    outputs: tuple[int | None, ...]
    gradients: tuple[int | None, ...]
    apart: frozenset[int]

    @property
    def given(self) -> dict[int, str]:
        """Names of the tensors that are inputs."""
        pairs = zip(self.inputs, self.names, strict=True)
        return {tensor: name for tensor, name in reversed([*pairs]) if tensor is not None}

    @property
    def places(self) -> dict[int, str]:
        """File and line of each op that has one."""
        sources, ops = self.graph.sources, enumerate(self.graph.ops)
        return {i: f"{sources[op.source].file}:{sources[op.source].line}" for i, op in ops if op.source != OUTSIDE}


def joint_of(module: GraphModule, fake_mode: Any, *, inputs: int, outputs: int | None = None) -> Joint:
    """The Joint of ``module``, whose first ``inputs`` placeholders are inputs and whose others are tangents.

    ``outputs``: how many of its results are those of the forward pass, the others being gradients; None: it has one
    pass. Raises RunError for a graph whose sizes are symbols.
    """
    return _Conversion(module, fake_mode).convert(inputs, outputs)


class _Conversion:
    def __init__(self, module: GraphModule, fake_mode: Any) -> None:
        self.module, self.fake_mode = module, fake_mode
        self.phase = Phase.FORWARD
        self.recorder = CodeRecorder(self._context)
        self.node: Node | None = None
        self.modules: dict[tuple[str, str], int] = {}
        self.sources: dict[Source, int] = {}
        self.values: dict[Node, Any] = {}

    def convert(self, inputs: int, outputs: int | None) -> Joint:
        nodes = list(self.module.graph.nodes)
        places = [node for node in nodes if node.op == "placeholder"]
        results: list[Any] = list(pytree.tree_leaves(nodes[-1].args[0]) if outputs is None else nodes[-1].args[0])
        forward = results if outputs is None else results[:outputs]
        first, second = _passes(nodes, places[inputs:], forward)
        if outputs is None:
            first = [node for node in nodes if node in {*first, *second}]
        given = [self._given(node) for node in places[:inputs]]
        self._run(first)
        ends = [self._tensor(value) for value in forward]
        between = None
        if outputs is not None:
            between = self._between(places[inputs:], ends)
            self.phase = Phase.BACKWARD
            self._run(second)
        gradients = [] if outputs is None else [self._tensor(value) for value in results[outputs:]]
        self._check_old_contents(between)
        graph = self._graph(given, ends, gradients)
        names = tuple(re.sub(r"\W", "_", node.name) for node in places[:inputs])
        apart = _apart(places[:inputs], given, forward, ends)
        return Joint(graph, self.recorder.codes, tuple(given), names, between, tuple(ends), tuple(gradients), apart)

    # -- values ---------------------------------------------------------------------------------

    def _given(self, node: Node) -> int | None:
        value = self.values[node] = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return self.recorder.tensor(value)
        _check_number(value, node)
        return None

    def _tensor(self, value: Any) -> int | None:
        """The tensor of a result, None if there is none."""
        if value is None:
            return None
        found = self.values[value] if isinstance(value, Node) else value
        if found is None:
            return None
        if not isinstance(found, torch.Tensor):
            raise RunError(f"a compiled plan returns tensors, and a result of the graph is {value} = {found!r}")
        return self.recorder.tensor(found)

    def _run(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.node = node
            if node.op == "get_attr":
                self.values[node] = _attribute(self.module, str(node.target))
                continue
            args = _plain(map_arg(node.args, self.values.__getitem__))
            kwargs: Any = {key: _plain(map_arg(arg, self.values.__getitem__)) for key, arg in node.kwargs.items()}
            target: Any = node.target
            if isinstance(target, OpOverload | HigherOrderOperator):
                with self.fake_mode:
                    self.values[node] = self.recorder.record(target, schema_of(target), args, kwargs)
            else:
                self.values[node] = target(*args, **kwargs)
                _check_number(self.values[node], node)

    def _between(self, tangents: Sequence[Node], outputs: Sequence[int | None]) -> int:
        """Append the op between the passes, and register the tangents as its results."""
        recorder, number = self.recorder, len(self.recorder.ops)
        made = []
        for node in tangents:
            value = self.values[node] = node.meta["val"]
            if isinstance(value, torch.Tensor):
                made.append(recorder.arrived(value))
        read = tuple([tensor for tensor in outputs if tensor is not None])
        arguments = (("outputs", (TENSOR,) * len(read)), ("caller", Const("opaque", "the caller")))
        recorder.calls.append(Call(_BETWEEN, arguments, 2, (), (TENSOR,) * len(made)))
        recorder.ops.append(Op(len(recorder.calls) - 1, read, tuple(made), Phase.OTHER))
        recorder.codes.append(Code(_of_caller, (), {}))
        return number

    # -- the Graph ------------------------------------------------------------------------------

    def _context(self, index: int) -> tuple[Any, ...]:
        del index
        node = self.node
        stack = None if node is None else node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        module = OUTSIDE
        if stack:
            path, kind = [*stack.values()][-1]
            module = self.modules.setdefault((_path(path), getattr(kind, "__name__", str(kind))), len(self.modules))
        text = None if node is None else node.meta.get("stack_trace") or node.meta.get("fwd_stack_trace")
        frames = _FRAME.findall(text) if text else []
        source = OUTSIDE
        if frames:
            file, line, function, code = frames[-1]
            source = self.sources.setdefault(Source(file, int(line), function, code), len(self.sources))
        return self.phase, module, source

    def _graph(self, given: Sequence[int | None], ends: Sequence[int | None], gradients: Sequence[int | None]) -> Graph:
        """Build the Graph, in which what the caller does not get is released after its last use."""
        recorder = self.recorder
        tables: dict[str, Any] = {
            "modules": tuple(Module(path, kind) for path, kind in self.modules),
            "sources": tuple(self.sources),
            "meta": Meta(workload="a compiled function", framework=f"torch {torch.__version__}", compiled=True),
        }
        raw = recorder.graph(**tables)
        users, stays = raw.index.users, dict[int, Role]()
        for role, tensors in ((Role.OUTPUT, ends), (Role.GRADIENT, gradients)):
            for tensor in tensors:
                if tensor is not None:
                    stays.setdefault(recorder.tensors[tensor].storage, role)
        storages = []
        for number, storage in enumerate(recorder.storages):
            if storage.birth is None:
                storages.append(replace(storage, role=Role.INPUT, death=None))
            elif number in stays:
                storages.append(replace(storage, role=stays[number], death=None))
            else:
                crosses = recorder.ops[storage.birth].phase is not recorder.ops[users[number][-1]].phase
                role = Role.ACTIVATION if crosses else Role.TEMPORARY
                storages.append(replace(storage, role=role, death=users[number][-1] + 1))
        return recorder.graph(storages, **tables)

    def _check_old_contents(self, between: int | None) -> None:
        """Raise RunError if the backward pass reads what an input had in it before the forward pass wrote it."""
        if between is None:
            return
        graph = self.recorder.graph()
        written = {s for op in range(between) for s in graph.index.writes[op] if graph.storages[s].birth is None}
        for op in range(between + 1, len(graph)):
            if stale := written.intersection(graph.index.reads[op]):
                raise RunError(
                    f"op {op} ({graph[op].name}) of the backward pass reads input storage {min(stale)}, which the "
                    "forward pass has overwritten: clone it before it is written"
                )


def _passes(nodes: Sequence[Node], tangents: Sequence[Node], results: Sequence[Any]) -> tuple[list[Node], list[Node]]:
    """The nodes of the forward pass, whose ``results`` are given, and of the backward pass, in order.

    The forward pass has what its results depend on, writes, and random numbers that it drew; nothing that depends on a
    tangent.
    """
    late: set[Node] = {*tangents}
    for node in nodes:
        if late.intersection(node.all_input_nodes):
            late.add(node)
    pending = [node for node in nodes if node not in late and _has_effect(node)]
    pending += [result for result in results if isinstance(result, Node)]
    early: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in early:
            early.add(node)
            pending += node.all_input_nodes
    inner = [node for node in nodes if node.op in ("call_function", "get_attr")]
    return [node for node in inner if node in early], [node for node in inner if node not in early]


def _apart(
    places: Sequence[Node], given: Sequence[int | None], results: Sequence[Any], ends: Sequence[int | None]
) -> frozenset[int]:
    """Places of results that are another node than the input or result before them with the same tensor."""
    first: dict[int, Any] = {tensor: node for node, tensor in zip(places, given, strict=True) if tensor is not None}
    pairs = enumerate(zip(results, ends, strict=True))
    return frozenset(n for n, (node, end) in pairs if end is not None and first.setdefault(end, node) is not node)


def _has_effect(node: Node) -> bool:
    """True for a write, and for random numbers drawn in the forward pass."""
    target: Any = node.target
    if not isinstance(target, OpOverload):
        return False
    draws = torch.Tag.nondeterministic_seeded in target.tags and not node.meta.get("autograd_backward")
    return bool(target._schema.is_mutable) or draws


def _check_number(value: Any, node: Node) -> None:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise RunError(
            f"{node.name} is a symbol ({value}): a plan needs numbers. Sizes that depend on the data cannot be planned"
        )


def _plain(value: Any) -> Any:
    """``value`` with lists and tuples of Python's own in place of those of FX."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return tuple([_plain(item) for item in value]) if isinstance(value, tuple) else value


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _path(path: str) -> str:
    """The path of a module as its owner names it: ``L['self'].layers[0]`` is ``layers.0``."""
    return re.sub(r"\W+", ".", re.sub(r"^[LG]\['\w+'\]", "", path).replace("_modules", "")).strip(".")


def _of_caller(*_: Any) -> Any:
    raise RunError("what stands between the passes is run by the caller")
