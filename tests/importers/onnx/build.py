"""Models built by hand: a few nodes, their inputs and stored tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import helper

FLOAT, INT64, BOOL = 1, 7, 9
Port = tuple[int, Sequence[int | str]]


def port(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = ()) -> Any:
    """Declare an input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def stored(name: str, kind: int, shape: Sequence[int], value: Any = 0) -> Any:
    """A stored tensor, every element the same, or a list of elements."""
    count = 1
    for n in shape:
        count *= n
    return helper.make_tensor(name, kind, shape, value if isinstance(value, list) else [value] * count)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node; names are separated by spaces, ``-`` is an omitted input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), **attributes)


def graph(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str], kept: Sequence[Any] = ()) -> Any:
    """A graph; outputs are declared without a shape."""
    return helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(name) for name in outputs], kept)


def model(
    nodes: Sequence[Any], inputs: Mapping[str, Port], outputs: str, kept: Sequence[Any] = (), opset: int = 17,
    **options: Any,
) -> Any:  # fmt: skip
    """A model of ``nodes``; inputs by name."""
    ports = [port(name, kind, shape) for name, (kind, shape) in inputs.items()]
    made = graph(nodes, ports, outputs.split(), kept)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, **options)
