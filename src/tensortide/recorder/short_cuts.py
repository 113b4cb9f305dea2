"""Calls that PyTorch's Python methods leave out, as they would return their input: ``contiguous`` of what is so
already, and slices of a whole dimension. A tracer of PyTorch's sees them like any other."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced

_aten: Any = torch.ops.aten
_END = (1 << 63) - 1
_plain: Any = torch.Tensor.__base__


Record = Callable[[Any, Callable[[], Any], tuple[Any, ...], dict[str, Any]], Any]
"""Records a call: the op, what makes the call, and the arguments. Returns the result."""


@contextlib.contextmanager
def short_cuts_seen(record: Record) -> Iterator[None]:
    """Have ``record`` see every call that is left out while active."""
    contiguous, item = _plain.contiguous, _plain.__getitem__

    def made_contiguous(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        result = contiguous(tensor, *args, **kwargs)
        if result is tensor:
            record(_aten.contiguous.default, lambda: result, (tensor,), {})
        return result

    def indexed(tensor: Any, index: Any) -> Any:
        parts = index if type(index) is tuple else (index,)
        if slice not in map(type, parts):
            return item(tensor, index)
        before, after, others = _whole_slices(tensor, parts)
        make = functools.partial(item, tensor, index)
        if not others and before:  # the last slice stands for what is run in place of all
            make = functools.partial(sliced, tensor, before.pop(), make)
        for dimension in before:
            sliced(tensor, dimension, lambda: tensor)
        result = make()
        for dimension in after:
            sliced(result, dimension, lambda: result)
        return result

    def sliced(tensor: Any, dimension: int, make: Callable[[], Any]) -> Any:
        return record(_aten.slice.Tensor, make, (tensor, dimension, 0, _END), {})

    try:
        with replaced(torch.Tensor, "contiguous", made_contiguous), replaced(torch.Tensor, "__getitem__", indexed):
            _not_sequences(torch.Tensor)
            yield
    finally:
        _not_sequences(torch.Tensor)


def _not_sequences(kind: type) -> None:
    """Have objects of the class ``kind``, whose ``__getitem__`` was set or reset, be no sequences for C code.

    Python makes a class one then, for good. ``torch.tensor`` asks sequences in its list for their length, and tensors
    of no dimension have none.
    """
    pointer = ctypes.sizeof(ctypes.c_void_p)
    methods = ctypes.c_void_p.from_address(id(kind) + object.__basicsize__ + _AS_SEQUENCE * pointer).value
    if methods is not None:
        ctypes.c_void_p.from_address(methods + _ITEM * pointer).value = None
    subclasses: list[type] = type.__subclasses__(kind)
    for each in subclasses:
        if "__getitem__" not in vars(each):
            _not_sequences(each)


_AS_SEQUENCE, _ITEM = 11, 3
"""Places of pointers: that to the methods of sequences in a class, after its header, and in those that to an item."""


def _whole_slices(tensor: Any, parts: tuple[Any, ...]) -> tuple[list[int], list[int], bool]:
    """Dimensions that an index slices as a whole: those before anything else that it does, and those after it; and
    whether it does anything else."""
    taken = sum(part is not None and part is not Ellipsis and type(part) is not bool for part in parts)
    before: list[int] = []
    after: list[int] = []
    dimension, others = 0, False
    for part in parts:
        if part is Ellipsis:
            dimension += tensor.dim() - taken
        elif type(part) is slice and _is_whole(part, tensor, dimension, moved=others):
            (after if others else before).append(dimension)
            dimension += 1
        else:
            dimension, others = dimension + (type(part) is not int), True
    return before, after, others


def _is_whole(part: slice, tensor: Any, dimension: int, *, moved: bool) -> bool:
    """Tell whether a slice takes all of a dimension; of one that may have moved, only ``:`` is known to."""
    if part.step not in (None, 1) or part.start not in (None, 0):
        return False
    return part.stop is None or (not moved and type(part.stop) is int and part.stop >= tensor.shape[dimension])


@contextlib.contextmanager
def as_for_a_tracer() -> Iterator[None]:
    """Let programs that ask ``torch.jit.is_tracing`` take the paths that they take for a tracer while active."""
    with replaced(torch.jit, "is_tracing", lambda: True):
        yield
