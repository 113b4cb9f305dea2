"""One dumped graph: what its names stand for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tensortide.errors import TraceError
from tensortide.graph.model import Phase, Role
from tensortide.importers.inductor.assembly import Assembly, Kernel
from tensortide.importers.inductor.syntax import Node, Parameter, Program, name_of_call
from tensortide.importers.inductor.types import Bad, SymbolType, TensorType
from tensortide.importers.inductor.values import Arguments, names_in

_NUMERIC = ("operator.", "math.", "torch.sym_", "torch.ops.aten.sym_", "float", "int", "bool")
_PREDEFINED = frozenset({"inf", "nan", "torch", "device", "fx_pytree", "self"})


class Part(NamedTuple):
    """Result of a call without a type, or a part of it: the kernel and the indexes that lead to the part."""

    kernel: int
    path: tuple[int, ...]


class Reading:
    """The graph of one phase, as it is put into ``made``.

    ``names``: of each name the tensor, the Part of a result, or None if it is neither. ``arguments`` are the
    parameters' tensors and ``results`` what it returns, in order, None for what is no tensor. ``first`` is its first
    kernel.
    """

    def __init__(self, program: Program, phase: Phase, assembly: Assembly) -> None:
        self.program = program
        self.phase = phase
        self.assembly = assembly
        self.first = len(assembly.kernels)
        self.names: dict[str, int | Part | None] = {}
        self.arguments: list[int | None] = []
        self.results: list[int | None] = []

    def parameters(self, known: Mapping[str, int | Part | None], local: bool = False) -> None:
        """Take the parameters: those that are ``known`` stand for these tensors. The others live across steps, or in
        this phase only if ``local`` says so."""
        for parameter in self.program.parameters:
            tensor = self._parameter(parameter, known, local)
            self.names[parameter.name] = tensor
            self.arguments.append(tensor)

    def _parameter(self, parameter: Parameter, known: Mapping[str, int | Part | None], local: bool) -> int | None:
        kind = parameter.type
        if not isinstance(kind, TensorType):
            return None
        tensor = known.get(parameter.name)
        if isinstance(tensor, int):
            first = self.assembly.types[tensor]
            if (first.dtype, first.dims) != (kind.dtype, kind.dims):
                name = parameter.name
                raise self._wrong(parameter.line, f"{name} has another type than the {name} it stands for")
            return tensor
        local = local or (self.phase is Phase.BACKWARD and not parameter.name.startswith("primals_"))
        born = self.first if local and self.first else None
        role = Role.GRADIENT if parameter.name.startswith("tangents_") else Role.INPUT
        return self._sized(parameter.line, lambda: self.assembly.fresh(parameter.name, kind, role, born, not local))

    def nodes(self) -> None:
        """Take the nodes and the results."""
        for node in self.program.nodes:
            if node.name in self.names:
                raise self._wrong(node.line, f"{node.name} is defined twice")
            try:
                self.names[node.name] = self._node(node)
            except RecursionError:
                raise self._wrong(node.line, "too deeply nested") from None
        for item in _leaves(self.program.results):
            if not (
                isinstance(item, ast.Name) or (isinstance(item, ast.Constant) and not isinstance(item.value, bytes))
            ):
                raise self._wrong(self.program.last_line, "'return' of names and None was expected")
            found = self._look_up(item) if isinstance(item, ast.Name) else None
            self.results.extend(found or [None])

    def _node(self, node: Node) -> int | Part | None:
        value, kind = node.value, node.type
        match value:
            case ast.Subscript():
                return self._getitem(node, value.value, value.slice)
            case ast.Call(args=[base, index], keywords=[]) if name_of_call(value) == "operator.getitem":
                return self._getitem(node, base, index)
            case ast.Call():
                return self._call(node, value)
            case ast.Name():
                found = self._look_up(value)
                return found[0] if found is not None and len(found) == 1 else self.names.get(value.id)
            case ast.Attribute(value=ast.Name(id="self")):  # a constant of the module; without a type it is no tensor
                if not isinstance(kind, TensorType):
                    return None
                return self._sized(node.line, lambda: self.assembly.fresh(node.name, kind, Role.BUFFER, None, True))
        if isinstance(kind, TensorType):
            raise self._wrong(node.line, f"{node.name} is a tensor, so a call was expected")
        for name in names_in(value):
            self._look_up(name)
        return None

    def _getitem(self, node: Node, base: ast.expr, index: ast.expr) -> int | Part | None:
        if not isinstance(base, ast.Name) or not isinstance(index, ast.Constant) or type(index.value) is not int:
            raise self._wrong(node.line, "'<name>[<number>]' was expected")
        self._look_up(base)
        part = self.names.get(base.id)
        if isinstance(part, int) or not 0 <= index.value < 1 << 20:
            raise self._wrong(node.line, f"{base.id} has no part {index.value}: it is one tensor")
        if part is None:
            return None
        path = (*part.path, index.value)
        kind = node.type
        if isinstance(kind, SymbolType):
            return None
        if kind is None:
            return Part(part.kernel, path)
        return self._sized(node.line, lambda: self.assembly.output(part.kernel, node.name, kind, path))

    def _call(self, node: Node, value: ast.Call) -> int | Part | None:
        name, kind = name_of_call(value), node.type
        if not name:
            raise self._wrong(node.line, "the call of a name such as torch.ops.aten.mul.Tensor was expected")
        if name.startswith(_NUMERIC) and not isinstance(kind, TensorType):
            for item in names_in(value):
                self._look_up(item)
            return None
        typed = isinstance(kind, TensorType)
        kernel = Kernel(node.name, name, node.text, self.phase, node.source, typed)
        arguments = Arguments(self._look_up)
        kernel.values = tuple(arguments.value(item) for item in value.args)
        kernel.named = tuple((keyword.arg or "", arguments.value(keyword.value)) for keyword in value.keywords)
        kernel.inputs = tuple(arguments.inputs)
        index = len(self.assembly.kernels)
        self.assembly.kernels.append(kernel)
        for tensor in kernel.inputs:
            self.assembly.use(tensor, index)
        if isinstance(kind, TensorType):
            return self._sized(node.line, lambda: self.assembly.output(index, node.name, kind, ()))
        return None if isinstance(kind, SymbolType) else Part(index, ())

    def _look_up(self, item: ast.Name) -> list[int] | None:
        """The tensors that a name stands for; None if it is known and is none. Raises TraceError."""
        if item.id not in self.names:
            if item.id in _PREDEFINED:
                return None
            raise self._wrong(item.lineno - 1, f"nothing has defined {item.id}", item.col_offset + 1)
        found = self.names[item.id]
        if isinstance(found, Part):
            outputs = self.assembly.kernels[found.kernel].outputs
            return [tensor for path, tensor in outputs if path[: len(found.path)] == found.path]
        return None if found is None else [found]

    def _sized(self, line: int, make: Callable[[], int]) -> int:
        try:
            return make()
        except Bad as error:
            raise self._wrong(line, str(error)) from None

    def _wrong(self, line: int, reason: str, column: int | None = None) -> TraceError:
        return self.program.file.wrong(line, reason, column)


def _leaves(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return [leaf for item in node.elts for leaf in _leaves(item)]
    return [node]
