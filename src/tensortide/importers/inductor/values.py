"""Calls in a dump as Calls of a Graph, and their arguments as values, with the names among them.

Argument names and tags come from PyTorch, where it is installed.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensortide.graph.model import TENSOR, Call, Const, Value
from tensortide.importers.inductor.syntax import name_of_call

if TYPE_CHECKING:
    from tensortide.recorder.schema import Schema

_NUMBERS = {"inf": math.inf, "nan": math.nan}
_KINDS = {
    **dict.fromkeys(["strided", "sparse_coo", "jagged", "_mkldnn"], "layout"),
    **dict.fromkeys(["contiguous_format", "channels_last", "channels_last_3d", "preserve_format"], "memory_format"),
}


class Arguments:
    """Values of arguments. ``look_up`` maps a name to its tensors (several for the result of a call without a type), or
    to None if it is no tensor; the tensors met are in ``inputs``, in the order of their holes."""

    def __init__(self, look_up: Callable[[ast.Name], list[int] | None]) -> None:
        self._look_up = look_up
        self.inputs: list[int] = []

    def value(self, node: ast.expr) -> Value:
        """``node`` as a value with holes."""
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() | str() | None as value):
                return value
            case ast.Name():
                return self._name(node)
            case ast.List() | ast.Tuple() | ast.Set():
                return tuple(self.value(item) for item in node.elts)
            case ast.Dict():
                return tuple(self.value(item) for item in node.values)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
                return -math.inf
            case ast.Attribute():
                return _constant(node)
            case ast.Call():
                return self._call(node)
            case _:
                return self._opaque(node)

    def _name(self, node: ast.Name) -> Value:
        if node.id in _NUMBERS:
            return _NUMBERS[node.id]
        tensors = self._look_up(node)
        if tensors is None:
            return Const("symbol", node.id)
        self.inputs.extend(tensors)
        return TENSOR if len(tensors) == 1 else (TENSOR,) * len(tensors)

    def _call(self, node: ast.Call) -> Value:
        if name_of_call(node) in ("device", "torch.device"):
            texts = [ast.unparse(item) for item in (*node.args, *(keyword.value for keyword in node.keywords))]
            return Const("device", ":".join(text.strip("'") for text in texts))
        return self._opaque(node)

    def _opaque(self, node: ast.expr) -> Value:
        """Its text; the tensors in it fill holes."""
        inside = tuple(self._name(name) for name in names_in(node))
        tensors = tuple(value for value in inside if not isinstance(value, Const))
        return tensors or Const("opaque", ast.unparse(node))


def _constant(node: ast.Attribute) -> Const:
    name = node.attr
    if isinstance(node.value, ast.Name) and node.value.id == "torch":
        return Const(_KINDS.get(name, "dtype"), name)
    return Const("opaque", ast.unparse(node))


def names_in(node: ast.AST) -> list[ast.Name]:
    """The names that ``node`` reads, in order: not those of modules and functions."""
    match node:
        case ast.Name():
            return [node]
        case ast.Attribute():
            return [] if isinstance(node.value, ast.Name) else names_in(node.value)
        case ast.Call():
            inside = [*node.args, *(keyword.value for keyword in node.keywords)]
            return [name for item in inside for name in names_in(item)]
        case _:
            return [name for item in ast.iter_child_nodes(node) for name in names_in(item)]


_OP = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", re.ASCII)


def call_of(name: str, values: tuple[Value, ...], named: tuple[tuple[str, Value], ...], returns: Value) -> Call:
    """The Call for the dumped function ``name``.

    An op that the installed PyTorch knows is named and has its arguments named as if it had been captured, so that
    cost rules apply. Any other is in the namespace ``fx``, its arguments numbered: no rule can mistake it.
    """
    schema = _schema(name)
    if schema is not None and len(values) <= len(schema.names):
        taken = schema.names[: len(values)]
        if all(key in schema.names and key not in taken for key, _ in named):
            return schema.call(values, named, returns)
    arguments = (*((f"x{index}", value) for index, value in enumerate(values)), *named)
    return Call(f"fx.{name.removeprefix('torch.ops.')}", arguments, len(values), (), returns)


@functools.cache
def _schema(name: str) -> Schema | None:
    found = _OP.fullmatch(name)
    if found is None:
        return None
    try:
        import torch

        from tensortide.recorder.schema import schema_of
        from tensortide.recorder.torch_compat import OpOverload
    except ImportError:
        return None
    part: object = torch.ops
    for word in (found[1], found[2], found[3] or "default"):
        part = getattr(part, word, None)
    return schema_of(part) if isinstance(part, OpOverload) else None
