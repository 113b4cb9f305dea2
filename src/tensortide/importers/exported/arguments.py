"""Nodes of a graph's JSON with their arguments: tensors by name, numbers by value, graphs as blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensortide.dtypes import numbered
from tensortide.errors import TraceError
from tensortide.graph.model import Const
from tensortide.importers.exported import document as d
from tensortide.importers.exported.program import Arg, Block, Node, Ref, Type, place_of
from tensortide.importers.exported.vmap import ENTER, LEAVE, mark

DTYPES = numbered("exported")
"""Dtypes by the number that the format gives them."""
_MEMORY_FORMATS = ("unknown", "contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
_LAYOUTS = ("unknown", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "strided")
_KEYWORD = 2
_OPS = "torch.ops."


class Scope:
    """The values of one graph, whose tensors have ``types``; ``number`` and ``block`` read sizes and inner graphs."""

    def __init__(
        self,
        origin: str,
        graph: d.Graph,
        types: Mapping[str, Type],
        number: Callable[[d.Int], int],
        block: Callable[[str, d.Graph], Block],
    ) -> None:
        self.origin, self.graph, self.types, self.number, self.block = origin, graph, types, number, block

    def node(self, node: d.Node) -> Node | None:
        """A node; None for arithmetic on sizes, and for checks of these."""
        outputs = tuple(self._named(name) for item in node.outputs for name in _results(item))
        reads = any(True for item in node.inputs for _ in tensors_in(item.arg))
        sizes = any(item.as_sym_int or item.as_sym_bool or item.as_sym_float for item in node.outputs)
        if not any(outputs) and (sizes or not reads) and mark(node.target) not in (ENTER, LEAVE):
            return None
        module, source = place_of(node.metadata)
        arguments = tuple((item.name or f"arg{i}", self.value(item.arg)) for i, item in enumerate(node.inputs))
        positional = sum(item.kind != _KEYWORD for item in node.inputs)
        name = node.name or next(filter(None, outputs), node.target)
        op = node.target.removeprefix(_OPS)
        return Node(name, op, arguments, outputs, positional, (), module, source)

    def value(self, item: d.Argument) -> Arg:
        """An argument; None for what is None."""
        for field in item.__struct_fields__:
            value = getattr(item, field)
            if value is not None:
                return _READ.get(field, _plain)(self, value)
        return None

    def tensor(self, item: d.Name) -> Arg:
        """A tensor. Raises TraceError for one that the graph does not have."""
        return Ref(self._named(item.name) or "")

    def _named(self, name: str | None) -> str | None:
        if name is not None and name not in self.types:
            raise TraceError(f"{self.origin}: {name!r} is no tensor of its graph")
        return name

    def named_number(self, item: d.NamedNumber) -> Arg:
        """A number that may have a name."""
        if item.as_name is None:
            return next((value for value in (item.as_int, item.as_float, item.as_bool) if value is not None), None)
        known = self.graph.sym_int_values.get(item.as_name)
        return Const("opaque", item.as_name) if known is None else self.number(known)


def tensors_in(item: d.Argument) -> Iterator[str]:
    """Names of the tensors of an argument."""
    if item.as_tensor is not None:
        yield item.as_tensor.name
    yield from (each.name for each in item.as_tensors or ())
    optional = [*(item.as_optional_tensors or ()), *([item.as_optional_tensor] if item.as_optional_tensor else [])]
    yield from (each.as_tensor.name for each in optional if each.as_tensor is not None)
    yield from (each.name for group in item.as_nested_tensors or () for each in group)
    for inner in (item.as_string_to_argument or {}).values():
        yield from tensors_in(inner)


def _results(item: d.Argument) -> list[str | None]:
    """Tensors that a node makes, None for one that it does not make; sizes are none."""
    if item.as_optional_tensors is not None:
        return [each.as_tensor.name if each.as_tensor else None for each in item.as_optional_tensors]
    if item.as_sym_int or item.as_sym_bool or item.as_sym_float or item.as_sym_ints:
        return []
    return list(tensors_in(item)) or [None]


def _plain(_: Scope, value: Any) -> Arg:
    return tuple(_plain(_, item) for item in value) if isinstance(value, list) else value


def _each(read: Callable[[Scope, Any], Arg]) -> Callable[[Scope, Any], Arg]:
    return lambda scope, items: tuple(read(scope, item) for item in items)


def _optional(scope: Scope, item: d.OptionalName) -> Arg:
    return None if item.as_tensor is None else scope.tensor(item.as_tensor)


def _of_table(kind: str, names: Mapping[int, str]) -> Callable[[Scope, Any], Arg]:
    return lambda _, number: Const(kind, names.get(number, "unknown"))


def _float(_: Scope, value: float | str) -> Arg:
    """A float; a word that is none stays a text."""
    try:
        return float(value)
    except ValueError:
        return value


def _device(_: Scope, item: d.Device) -> Arg:
    return Const("device", item.type if item.index is None else f"{item.type}:{item.index}")


_READ: dict[str, Callable[[Scope, Any], Arg]] = {
    "as_tensor": Scope.tensor,
    "as_tensors": _each(Scope.tensor),
    "as_nested_tensors": _each(_each(Scope.tensor)),
    "as_optional_tensor": _optional,
    "as_optional_tensors": _each(_optional),
    "as_float": _float,
    "as_floats": _each(_float),
    "as_float_lists": _each(_each(_float)),
    "as_sym_int": Scope.named_number,
    "as_sym_ints": _each(Scope.named_number),
    "as_sym_float": Scope.named_number,
    "as_sym_floats": _each(Scope.named_number),
    "as_sym_bool": Scope.named_number,
    "as_sym_bools": _each(Scope.named_number),
    "as_scalar_type": _of_table("dtype", DTYPES),
    "as_memory_format": _of_table("memory_format", dict(enumerate(_MEMORY_FORMATS))),
    "as_layout": _of_table("layout", dict(enumerate(_LAYOUTS))),
    "as_device": _device,
    "as_graph": lambda scope, item: scope.block(item.name, item.graph),
    "as_custom_obj": lambda _, item: Const("opaque", item.class_fqn or item.name),
    "as_complex": lambda _, item: complex(item.real, item.imag),
    "as_string_to_argument": lambda scope, items: tuple(scope.value(item) for item in items.values()),
}
"""How the fields of an argument are read that are no plain numbers, texts or lists of these."""
