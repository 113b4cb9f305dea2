"""Outputs of a traced op: its shapes follow from those of its inputs, by the op itself on tensors without data."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tensortide.errors import GraphError
from tensortide.graph.signatures import Argument as Parameter
from tensortide.graph.signatures import Signature, signatures_of
from tensortide.importers.execution.graph import DTYPE_NUMBERS
from tensortide.importers.kineto.calls import Argument, Given

_PLACES = frozenset({"layout", "device", "pin_memory", "memory_format"})


class Result(NamedTuple):
    """Output of an op, or None for an absent one."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def signature_of(name: str, arguments: Sequence[Argument]) -> Signature | None:
    """Find the overload of ``aten::op`` that has these arguments; None for an op that no cost rule knows."""
    for signature in signatures_of(name.replace("::", ".")):
        parameters = signature.arguments
        if len(parameters) == len(arguments) and all(map(_takes, parameters, arguments)):
            return signature
    return None


def _takes(parameter: Parameter, value: Argument) -> bool:
    if value is None:
        return True
    if isinstance(value, Given):
        return parameter.kind == "tensor"
    if isinstance(value, tuple) and any(isinstance(item, Given) for item in value):
        return parameter.kind == "tensors"
    return parameter.kind == "value"


@functools.lru_cache(maxsize=1 << 14)
def results_of(signature: Signature, arguments: tuple[Argument, ...]) -> tuple[Result | None, ...] | None:
    """Return what an op yields for these arguments; None where it has no kernel for tensors without data, or
    where these are not possible.

    Only ops with a signature run, on the device ``meta``: nothing is allocated, and no value is read.
    """
    import torch

    _, base, overload = signature.op.split(".")
    op = getattr(getattr(torch.ops.aten, base), overload)
    positional, named = [], {}
    try:
        for parameter, value in zip(signature.arguments, arguments, strict=True):
            made = _made(parameter.name, value)  # a tensor of more bytes than can be numbered is an error here
            if parameter.keyword and made is not None and parameter.name not in _PLACES:
                named[parameter.name] = made
            elif not parameter.keyword:
                positional.append(made)
        with torch.no_grad():
            if not any(isinstance(value, Given | tuple) for value in arguments):
                named["device"] = torch.device("meta")
            found = op(*positional, **named)
    except (GraphError, RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AssertionError):
        return None
    values = found if isinstance(found, tuple | list) else (found,)
    return tuple(_result(value) for value in values)


def _made(name: str, value: Argument) -> Any:
    import torch

    from tensortide.recorder.torch_dtypes import torch_dtype

    if isinstance(value, Given):
        dtype = torch_dtype(value.dtype)
        if value.strides is None:
            return torch.empty(value.shape, dtype=dtype, device="meta")
        return torch.empty_strided(value.shape, value.strides, dtype=dtype, device="meta")
    if isinstance(value, tuple):
        return [_made("", item) for item in value]
    if name in ("dtype", "input_dtype", "out_dtype") and isinstance(value, int):
        return torch_dtype(DTYPE_NUMBERS[value]) if value in DTYPE_NUMBERS else None
    return value


def _result(value: Any) -> Result | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    return Result(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()))
