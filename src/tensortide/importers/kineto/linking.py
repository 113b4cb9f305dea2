"""The tensors that ops of a trace were given: a trace has shapes and no identities.

An input is the tensor of its shape, dtype and strides that the order of the ops makes most likely: a gradient is the
one that the backward pass made last, another input of a backward op was saved by the forward op of the same sequence
number, and an input of the forward pass is the one made last that no op has read yet. What nothing made existed before
the step.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tensortide.errors import GraphError
from tensortide.graph import Handle, Phase
from tensortide.graph.signatures import Argument as Parameter
from tensortide.graph.signatures import Signature, signatures_of
from tensortide.importers.execution.graph import DTYPE_NUMBERS
from tensortide.importers.kineto.calls import Argument, Given

Key: TypeAlias = tuple[str, tuple[int, ...]]


@dataclass(eq=False)
class Seen:
    """A tensor of the graph: the phase that made it (None: it existed before), whether an op has read or written it,
    and whether its storage existed ``before`` the step."""

    handle: Handle
    made: Phase | None
    strides: tuple[int, ...] | None
    before: bool
    read: bool = False
    written: bool = False


@dataclass
class Linking:
    """The tensors so far, by dtype and shape in the order in which they were made; inputs and outputs of forward ops by
    sequence number."""

    seen: dict[Key, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    inputs: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    outputs: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))

    def add(self, handle: Handle, made: Phase | None, strides: tuple[int, ...] | None, *, before: bool) -> Seen:
        """Enter a tensor."""
        found = Seen(handle, made, strides, before)
        self.seen[handle.dtype, handle.shape].append(found)
        return found

    def dtype(self, shape: tuple[int, ...]) -> str:
        """Find the dtype of the tensors of a shape; empty where there are none, or several dtypes."""
        found = {dtype for dtype, known in self.seen if known == shape}
        return found.pop() if len(found) == 1 else ""

    def again(self, given: Given) -> Seen | None:
        """Find what existed before the step and was read already."""
        known = (one for one in self.seen.get((given.dtype, given.shape), ()) if one.made is None)
        return next(known, None)

    def gradient(self, given: Given) -> Seen | None:
        """Find the gradient that was made last and has this shape."""
        known = reversed(self.seen.get((given.dtype, given.shape), ()))
        return next((one for one in known if one.made is Phase.BACKWARD and not one.before), None)

    def find(
        self, given: Given, name: str, phase: Phase, sequence: int | None, taken: list[Seen], *, written: bool
    ) -> Seen | None:
        """Find what an argument ``name`` was, that is none of those ``taken``; None for what existed before."""
        free = [
            one
            for one in reversed(self.seen.get((given.dtype, given.shape), ()))
            if one not in taken and (one.strides is None or given.strides is None or one.strides == given.strides)
        ]
        if phase is Phase.BACKWARD:
            outputs = self.outputs if name in ("output", "result") else self.inputs
            saved = outputs.get(sequence, []) if sequence is not None else []
            order = list(_backward(free, name, saved, first=not taken))
        elif phase is Phase.OPTIMIZER:
            order = list(_optimizer(free, name, written))
        else:
            order = [one for one in free if one.made and not one.read] or [one for one in free if one.made]
        return order[0] if order else None


def _backward(free: list[Seen], name: str, saved: list[Seen], *, first: bool) -> Iterator[Seen]:
    fresh = [one for one in free if one.made is Phase.BACKWARD and not one.read]
    if "grad" in name or (first and name not in ("output", "result")):
        yield from fresh
    yield from (one for one in reversed(saved) if one in free)
    yield from fresh
    yield from (one for one in free if one.made is Phase.BACKWARD)
    yield from free


def _optimizer(free: list[Seen], name: str, written: bool) -> Iterator[Seen]:
    if written and name in ("self", "param", "params"):
        yield from (one for one in free if one.made is Phase.OPTIMIZER and not one.read)
        yield from (one for one in free if one.made is None and not one.written)
    elif "exp_avg" not in name and "momentum" not in name:
        yield from (one for one in free if one.made is Phase.OPTIMIZER and not one.read)
        yield from (one for one in free if one.made is Phase.BACKWARD)
        yield from (one for one in free if one.written)


# -- shapes of results ------------------------------------------------------------------------------
# Outputs of a traced op: its shapes follow from those of its inputs, by the op itself on tensors without data.


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
