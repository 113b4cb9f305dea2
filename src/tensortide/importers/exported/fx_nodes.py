"""Nodes of torch.fx with their arguments: tensors by name, sizes by value, graphs as blocks."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from tensortide.errors import WorkloadError
from tensortide.graph.model import Const, Role, Source
from tensortide.importers.exported.program import Arg, Block, Given, Node, Ref, Type, module_of, source_of
from tensortide.importers.exported.sizes import Symbols
from tensortide.importers.exported.vmap import ENTER, LEAVE, mark
from tensortide.recorder.torch_compat import HigherOrderOperator, OpOverload

_KINDS: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}
_STACKS = ("nn_module_stack", "fwd_nn_module_stack")


def is_tensor(value: Any) -> bool:
    """True for a tensor, or a fake one."""
    return isinstance(value, torch.Tensor)


def has_shapes(graph: torch.fx.Graph) -> bool:
    """True if all calls are of ops that the dispatcher has, or of sizes, and those that make tensors carry these."""
    for node in graph.nodes:
        if node.op in ("call_module", "call_method"):
            return False
        if node.op == "placeholder" and "val" not in node.meta:
            return False
        if node.op == "call_function" and isinstance(node.target, (OpOverload, HigherOrderOperator)):
            if "val" not in node.meta and node.users:
                return False
        elif node.op == "call_function" and is_tensor(node.meta.get("val")) and node.target is not operator.getitem:
            return False
    return True


class Reading:
    """The nodes of a GraphModule and of those in it; ``constants`` are the tensors that nodes get from attributes."""

    def __init__(self, module: GraphModule, origin: str) -> None:
        self.module, self.origin = module, origin
        self.symbols = Symbols(origin, {})
        self.constants: list[Given] = []

    def settle(
        self,
        given: Mapping[str, int],
        bind: tuple[str, ...],
        inputs: list[FxNode],
        ranges: Mapping[str, tuple[int | None, int | None]],
    ) -> None:
        """Decide the values of all symbols; parameters are those of ``Symbols.settle``."""
        self.symbols = Symbols(self.origin, ranges)
        tensors = {node.name: node.meta["val"] for node in inputs if is_tensor(node.meta.get("val"))}
        for name, value in tensors.items():
            for place, size in enumerate(value.shape):
                self._learn(size, f"{name}.{place}")
        bounds: list[tuple[str, Callable[[], int]]] = []
        for module in _modules(self.module):
            for node in module.graph.nodes:
                for value in _leaves(node.meta.get("val")):
                    sizes = (*value.shape, *_strides(value), _offset(value)) if is_tensor(value) else (value,)
                    for size in sizes:
                        self._learn(size)
                    if is_tensor(value):
                        bounds.extend(self._bounds(node, value))
        dims = {name: [str(size) for size in value.shape] for name, value in tensors.items()}
        self.symbols.settle(given, bind, dims, bounds)

    def _learn(self, size: Any, where: str = "") -> None:
        if isinstance(size, torch.SymInt):
            hint = size.node.hint if size.node.has_hint() else None
            self.symbols.learn(str(size), hint if isinstance(hint, int) else None, where)

    def _bounds(self, node: FxNode, value: torch.Tensor) -> Iterator[tuple[str, Callable[[], int]]]:
        """For each symbol in the shape of a result the elements of what its op reads: selections have no more."""
        read = next((one.meta["val"] for one in node.all_input_nodes if is_tensor(one.meta.get("val"))), None)
        sizes: list[Any] = [*value.shape] if read is not None else []
        for size in sizes:
            if isinstance(size, torch.SymInt):
                yield str(self.symbols.expression(str(size))), functools.partial(self._numel, read)

    def _numel(self, value: Any) -> int:
        return math.prod(self.number(size) for size in value.shape)

    def number(self, value: Any) -> int:
        """A size, symbolic or not."""
        if not isinstance(value, torch.SymInt):
            return int(value)
        hint = value.node.hint if value.node.has_hint() else None
        return self.symbols.size(str(value), hint if isinstance(hint, int) else None)

    # -- graphs ----------------------------------------------------------------------------------------

    def block(self, name: str, module: GraphModule) -> Block:
        """One graph, and those in it."""
        types: dict[str, Type] = {}
        inputs: list[str | None] = []
        nodes: list[Node] = []
        parts: dict[FxNode, tuple[str | None, ...]] = {}
        outputs: tuple[Arg, ...] = ()
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if node.op == "output":
                outputs = tuple(self._argument(item, module, parts) for item in _flat(node.args[0]))
            elif node.op == "get_attr":
                self._attribute(node, module, types, outer=not name)
            elif node.op == "placeholder":
                inputs.append(node.name if is_tensor(value) else None)
                self._note(types, {node.name: value})
            elif node.target is operator.getitem and isinstance(node.args[0], FxNode) and node.args[0] in parts:
                self._part(node, parts, types, nodes)
            else:
                self._call(node, module, types, nodes, parts)
        return Block(name, tuple(inputs), nodes, outputs, types)

    def _call(
        self,
        node: FxNode,
        module: GraphModule,
        types: dict[str, Type],
        nodes: list[Node],
        parts: dict[FxNode, tuple[str | None, ...]],
    ) -> None:
        value = node.meta.get("val")
        several = isinstance(value, (list, tuple))
        made = {f"{node.name}.{i}" if several else node.name: each for i, each in enumerate(_flat(value))}
        outputs = tuple(name if is_tensor(each) else None for name, each in made.items())
        if several:
            parts[node] = outputs
        op, names = _op_of(node.target)
        reads = any(is_tensor(one.meta.get("val")) or one in parts for one in node.all_input_nodes)
        if not any(outputs) and (value is not None or not reads) and mark(op) not in (ENTER, LEAVE):
            return  # arithmetic on sizes, and checks of these
        self._note(types, made)
        given = [*enumerate(node.args)]
        positional = [(names[i] if i < len(names) else f"arg{i}", item) for i, item in given]
        arguments = tuple(
            (key, self._argument(item, module, parts)) for key, item in (*positional, *node.kwargs.items())
        )
        nodes.append(
            Node(node.name, op, arguments, outputs, len(given), _tags(node.target), _module(node), _source(node))
        )

    def _part(
        self, node: FxNode, parts: dict[FxNode, tuple[str | None, ...]], types: dict[str, Type], nodes: list[Node]
    ) -> None:
        """A part of a result gets the name of its node, by which others know it."""
        whole, index = node.args
        assert isinstance(whole, FxNode)
        place = index if isinstance(index, int) else 0
        old = parts[whole][place] if -len(parts[whole]) <= place < len(parts[whole]) else None
        if old is None or old not in types:
            return
        parts[whole] = tuple(node.name if name == old else name for name in parts[whole])
        types[node.name] = types[old]
        for at in reversed(range(len(nodes))):
            one = nodes[at]
            if old in one.outputs:
                renamed = tuple(node.name if name == old else name for name in one.outputs)
                nodes[at] = Node(
                    *(one.name, one.op, one.arguments, renamed, one.positional, one.tags, one.module, one.source)
                )
                return

    def _argument(self, item: Any, module: GraphModule, parts: Mapping[FxNode, tuple[str | None, ...]]) -> Arg:
        if isinstance(item, FxNode):
            return self._value(item, module, parts)
        if isinstance(item, (list, tuple)):
            return tuple(self._argument(each, module, parts) for each in item)
        if isinstance(item, dict):
            return tuple(self._argument(each, module, parts) for each in item.values())
        if isinstance(item, slice):
            return tuple(self._argument(each, module, parts) for each in (item.start, item.stop, item.step))
        if item is None or isinstance(item, (bool, int, float, complex, str)):
            return item
        if isinstance(item, OpOverload):
            return Const("opaque", str(item))
        kind = next((name for type_, name in _KINDS.items() if isinstance(item, type_)), "opaque")
        return Const(kind, str(item).removeprefix("torch.") if kind != "opaque" else type(item).__name__)

    def _value(self, node: FxNode, module: GraphModule, parts: Mapping[FxNode, tuple[str | None, ...]]) -> Arg:
        if node in parts:
            return tuple(None if name is None else Ref(name) for name in parts[node])
        value = node.meta.get("val")
        if node.op == "get_attr":
            held = _held(module, str(node.target))
            if isinstance(held, GraphModule):
                return self.block(str(node.target), held)
            return Ref(node.name) if is_tensor(held) else Const("opaque", str(node.target))
        if is_tensor(value):
            return Ref(node.name)
        if isinstance(value, torch.SymInt):
            return self.number(value)
        return value if isinstance(value, (bool, int, float, str)) else Const("opaque", node.name)

    def _attribute(self, node: FxNode, module: GraphModule, types: dict[str, Type], *, outer: bool) -> None:
        held = _held(module, str(node.target))
        if not is_tensor(held):
            return
        if not outer:
            raise WorkloadError(f"{self.origin}: {node.name}, in a graph of a higher-order op, is a tensor of its own")
        self._note(types, {node.name: held})
        role = Role.PARAMETER if isinstance(held, torch.nn.Parameter) else Role.BUFFER
        self.constants.append(Given(node.name, role, str(node.target), role is Role.PARAMETER and held.requires_grad))

    def _note(self, types: dict[str, Type], made: Mapping[str, Any]) -> None:
        for name, value in made.items():
            if is_tensor(value):
                shape, strides = (tuple(map(self.number, sizes)) for sizes in (value.shape, _strides(value)))
                offset = self.number(_offset(value))
                dtype, device = str(value.dtype).removeprefix("torch."), str(value.device)
                types[name] = Type(dtype, shape, strides, offset, device)


def _op_of(target: Any) -> tuple[str, list[str]]:
    """The name of an op, and those of its arguments."""
    if isinstance(target, OpOverload):
        return str(target), [argument.name for argument in target._schema.arguments]
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}", []
    return f"{getattr(target, '__module__', 'python')}.{getattr(target, '__name__', target)}", []


def _tags(target: Any) -> tuple[str, ...]:
    return ("pointwise",) if isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags else ()


def _module(node: FxNode) -> tuple[str, str] | None:
    stack = next((node.meta[name] for name in _STACKS if node.meta.get(name)), None)
    if not stack:
        return None
    path, kind = [*stack.values()][-1]
    return module_of(str(path), kind.__name__ if isinstance(kind, type) else str(kind))


def _source(node: FxNode) -> Source | None:
    return source_of(node.meta.get("stack_trace") or "")


def _held(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in (_flat(item) if isinstance(item, (list, tuple)) else [item])]
    return [value]


def _leaves(value: Any) -> Iterator[Any]:
    return (each for each in _flat(value) if each is not None)


def _strides(value: torch.Tensor) -> tuple[Any, ...]:
    return tuple(value.stride()) if value.layout is torch.strided else ()


def _offset(value: torch.Tensor) -> Any:
    return value.storage_offset() if value.layout is torch.strided else 0


def _modules(module: GraphModule) -> Iterator[GraphModule]:
    return (one for one in module.modules() if isinstance(one, GraphModule))
