"""The Graph of a program: storages by last use, gradients as a backward phase, loops and branches as such."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tensortide.errors import GraphError, TraceError
from tensortide.graph import GraphBuilder, Handle, Out, Phase
from tensortide.graph.handles import Given
from tensortide.graph.model import Const, Graph, Named, Role
from tensortide.importers.exported import control
from tensortide.importers.exported.memory import bases, offsets, writes
from tensortide.importers.exported.program import Arg, Block, End, Node, Program, Ref, Type, refs
from tensortide.importers.exported.vmap import Vmaps, hoisted

_LIFETIMES = "lifetimes by last use: a program does not say when its caller releases what"
_BY_NAME = "views, and what ops write in place, are told by the names of ops"
_DEEPEST = 60


def graph_of(program: Program) -> Graph:
    """The Graph of ``program``. Raises TraceError for a program that contradicts itself."""
    building = Building(program)
    try:
        graph = building.graph()
    except GraphError as error:
        raise TraceError(f"{program.origin}: {building.place}{error}") from None
    except RecursionError:
        raise TraceError(f"{program.origin}: graphs in it are too deeply nested") from None
    guesses = tuple(program.guesses)
    notes = (_LIFETIMES, _BY_NAME, *program.notes, *guesses)
    return msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, assumptions=notes, decisive=guesses))


class Building:
    """A Graph that is built; ``b`` is its builder, ``block`` the nodes that it is at."""

    def __init__(self, program: Program) -> None:
        self.program = program
        types = program.body.types
        first = next((types[one.name].device for one in program.given if one.name in types), "cpu")
        self.b = GraphBuilder(Path(program.origin).name, framework=program.framework, device=first)
        self.named: list[Named] = []
        self.offsets: dict[int, int] = {}
        """Where tensors begin in their storages, in elements, if not at the start."""
        self.block = program.body
        self.place = ""
        self._depth = 0

    def graph(self) -> Graph:
        """Build all of it."""
        body, given = self.program.body, self._given()
        late = _backward(self.program)
        values = self._nodes(body, dict(given), late)
        for result in self.program.results:
            handle = values.get(result.name)
            if handle is None:
                raise TraceError(f"{self.program.origin}: nothing makes the result {result.name!r}")
            if result.end is End.MUTATION and result.of in given:
                self._written(given[result.of], handle)
            else:
                self.b.output(handle)
                is_gradient = result.end is End.GRADIENT
                name = f"{self._title(result.of)}.grad" if is_gradient else result.name
                self.named.append(Named(name, Role.GRADIENT if is_gradient else Role.OUTPUT, handle.index))
        return _with_names(self.b.build(), self.named)

    # -- what the program takes and returns ------------------------------------------------------------

    def _given(self) -> dict[str, Handle]:
        found: dict[str, Handle] = {}
        for one in self.program.given:
            kind = self.program.body.types[one.name]
            if one.same_as in found and found[one.same_as].shape == kind.shape:
                found[one.name] = found[one.same_as]
                self.b.alias(one.title, found[one.name])
            else:
                title = one.title or one.name
                found[one.name] = self.b.value(title, kind.shape, kind.dtype, role=one.role, trainable=one.trainable)
                if one.role is Role.INPUT:
                    self.named.append(Named(title, one.role, found[one.name].index))
        return found

    def _title(self, name: str) -> str:
        return next((one.title or one.name for one in self.program.given if one.name == name), name)

    def _written(self, target: Handle, value: Handle) -> None:
        """Copy what the program returns as new contents into what was given, as its caller does."""
        arguments: list[tuple[str, Given]] = [("self", target), ("src", value)]
        out = Out(target.shape, target.dtype, view_of=target)
        self.b.call("aten.copy_.default", arguments, positional=2, outs=[out], mutates=[target])

    # -- nodes -----------------------------------------------------------------------------------------

    def run(self, block: Block, operands: Sequence[Handle | None]) -> list[Handle | None]:
        """Append the ops of an inner block and return its results. Raises TraceError if it takes other operands."""
        if len(operands) < len(block.inputs):
            raise GraphError(f"its graph {block.name} takes {len(block.inputs)} values, and {len(operands)} are given")
        if self._depth >= _DEEPEST:
            raise GraphError("graphs in it are too deeply nested")
        self._depth += 1
        given = zip(block.inputs, operands, strict=False)
        values = self._nodes(block, {name: handle for name, handle in given if name and handle}, frozenset())
        self._depth -= 1
        return [values.get(one.name) if isinstance(one, Ref) else None for one in _flat(block.outputs)]

    def _nodes(self, block: Block, values: dict[str, Handle], late: frozenset[str]) -> dict[str, Handle]:
        """Append the ops of ``block`` to those before it and return its tensors; nodes named in ``late`` are of the
        backward pass."""
        vmaps = Vmaps(self)
        around, self.block = self.block, block
        for node in hoisted(list(without_tokens(block.nodes))):
            with contextlib.ExitStack() as stack:
                self.place = f"{node.name} ({node.op}): "
                if node.name in late:
                    stack.enter_context(self.b.phase(Phase.BACKWARD))
                if node.module is not None:
                    stack.enter_context(self.b.module(*node.module))
                if node.source is not None:
                    line = node.source
                    stack.enter_context(self.b.source(line.file, line.line, line.function, line.code))
                inner = vmaps.take(node, block.types, values)
                inner = control.expand(self, node, values) if inner is None else inner
                made = self._op(node, block.types, values) if inner is None else inner
            values.update({name: handle for name, handle in zip(node.outputs, made, strict=False) if name and handle})
        self.block = around
        return values

    def _op(self, node: Node, types: Mapping[str, Type], values: Mapping[str, Handle]) -> Sequence[Handle | None]:
        homes = bases(node, types)
        outs = self._outs(node, types, [values.get(home or "") for home in homes])
        arguments = [(name, self.value(value, values)) for name, value in node.arguments]
        mutates = [self.tensor(name, values) for name in writes(node)]
        tags = ("view",) if homes and all(homes) and not mutates else node.tags
        made = self.b.call(
            node.op, arguments, positional=node.positional, outs=outs, mutates=mutates, tags=tags, label=node.name
        )
        for handle, out in zip(made, outs, strict=True):
            if handle is not None and out is not None and out.offset:
                self.offsets[handle.index] = out.offset
        return made

    def _outs(self, node: Node, types: Mapping[str, Type], homes: Sequence[Handle | None]) -> list[Out | None]:
        """Describe the results of a node, each in its home or in a storage of its own."""
        first = next(filter(None, homes), None)
        starts = [0] * len(homes)
        if first is not None and all(home is None or home.index == first.index for home in homes):
            starts = offsets(node, types, self.offsets.get(first.index, 0))
        return [
            _out(types[name], home, start) if name else None
            for name, home, start in zip(node.outputs, homes, starts, strict=True)
        ]

    def value(self, value: Arg, values: Mapping[str, Handle]) -> Given:
        """An argument with handles in place of names."""
        if isinstance(value, Ref):
            return self.tensor(value.name, values)
        if isinstance(value, tuple):
            return tuple(self.value(item, values) for item in value)
        return Const("opaque", value.name) if isinstance(value, Block) else value

    def tensor(self, name: str, values: Mapping[str, Handle]) -> Handle:
        """The tensor of a name. Raises GraphError where nothing before makes it."""
        if name not in values:
            raise GraphError(f"nothing before it makes {name!r}")
        return values[name]


def _with_names(graph: Graph, named: list[Named]) -> Graph:
    """``graph`` with further named tensors; the storages of gradients among them have that role."""
    gradients = {graph.tensors[each.tensor].storage for each in named if each.role is Role.GRADIENT}
    storages = [
        msgspec.structs.replace(storage, role=Role.GRADIENT)
        if index in gradients and storage.birth is not None
        else storage
        for index, storage in enumerate(graph.storages)
    ]
    return msgspec.structs.replace(graph, named=(*graph.named, *named), storages=tuple(storages))


def _out(kind: Type, home: Handle | None, offset: int) -> Out:
    strides = kind.strides if len(kind.strides) == len(kind.shape) else None
    if home is None:
        return Out(kind.shape, kind.dtype, strides=strides)
    return Out(kind.shape, kind.dtype, view_of=home, strides=strides, offset=offset)


def _flat(values: tuple[Arg, ...]) -> list[Arg]:
    return [each for value in values for each in (_flat(value) if isinstance(value, tuple) else [value])]


def _backward(program: Program) -> frozenset[str]:
    """Nodes of the backward pass, where there are gradients among the results: those that no other result needs."""
    if all(result.end is not End.GRADIENT for result in program.results):
        return frozenset()
    needed = {result.name for result in program.results if result.end is not End.GRADIENT}
    late = set()
    for node in reversed(program.body.nodes):
        if needed.isdisjoint(filter(None, node.outputs)):
            late.add(node.name)
        else:
            needed.update(name for _, value in node.arguments for name in refs(value))
    return frozenset(late)


_WITH_EFFECTS = "higher_order.with_effects"


def without_tokens(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield ``nodes`` with ``with_effects(token, op, ...)``, which returns a token and what ``op`` does, as calls of
    ``op``. Raises GraphError for one that names no op."""
    for node in nodes:
        if node.op.partition(".default")[0] != _WITH_EFFECTS:
            yield node
            continue
        called = node.arguments[1][1] if len(node.arguments) > 1 else None
        op = called.value if isinstance(called, Const) else called
        if not isinstance(op, str):
            raise GraphError(f"{node.name} ({node.op}): it names no op")
        yield replace(
            node, op=op.removeprefix("torch.ops."), arguments=node.arguments[2:], outputs=node.outputs[1:],
            positional=max(node.positional - 2, 0),
        )  # fmt: skip
