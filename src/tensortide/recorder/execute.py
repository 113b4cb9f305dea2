"""Execute a recorded op again: its function, and its arguments with tensors of the caller's making."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.errors import GraphError
from tensortide.graph.model import TENSOR, Call, Const, OpView, Tensor, Value

_NAMED = ("dtype", "layout", "memory_format")


def function(call: Call) -> Any:
    """The dispatcher op that ``call`` names. Raises GraphError if this PyTorch has none of that name."""
    owner: Any = torch.ops
    for part in call.op.split("."):
        owner = getattr(owner, part, None)
        if owner is None:
            raise GraphError(f"this PyTorch ({torch.__version__}) has no op {call.op}")
    return owner


def arguments(op: OpView, make: Callable[[Tensor], torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of ``op``; ``make`` gives the real or fake tensor for each input."""
    tensors = iter(op.inputs)
    values = [(name, _value(value, tensors, make)) for name, value in op.call.arguments]
    cut = op.call.positional
    return [value for _, value in values[:cut]], dict(values[cut:])


def _value(value: Value, tensors: Iterator[Tensor], make: Callable[[Tensor], torch.Tensor]) -> Any:
    if value is TENSOR:
        return make(next(tensors))
    if isinstance(value, tuple):
        return [_value(item, tensors, make) for item in value]
    return _constant(value) if isinstance(value, Const) else value


def _constant(value: Const) -> Any:
    if value.kind in _NAMED:
        return getattr(torch, value.value)
    if value.kind == "device":
        return torch.device(value.value)
    if value.kind == "generator":
        return torch.Generator(value.value)
    if value.kind == "tensor":
        return _embedded(value.value)
    raise GraphError(f"an argument was not recorded and cannot be given again: {value.value}")


def _embedded(text: str) -> torch.Tensor:
    """The small constant tensor written as ``dtype (shape) [values]``."""
    dtype, _, rest = text.partition(" ")
    shape, _, values = rest.partition(") ")
    sizes = ast.literal_eval(shape + ")")
    if values == "...":
        return torch.zeros(sizes, dtype=getattr(torch, dtype.removeprefix("torch.")))
    items = [
        float(item) if item in _NOT_FINITE else ast.literal_eval(item) for item in values[1:-1].split(", ") if item
    ]
    return torch.tensor(items, dtype=getattr(torch, dtype.removeprefix("torch."))).reshape(sizes)


_NOT_FINITE = ("inf", "-inf", "nan")
