"""NumPy arrays over the memory of tensors, found among everything that the program holds."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
)
from typing import Any

import torch

_HOLD_NONE = frozenset({BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, MethodDescriptorType})
"""Types of most objects there are; what a function holds is in cells, dictionaries and tuples."""
_MANY = 4096


def arrays_over_tensors() -> list[tuple[torch.Tensor, Any]]:
    """Each array that shares the memory of a tensor, after the tensor: the one that views of it refer to."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return []
    kinds = frozenset(_with_subclasses(numpy.ndarray))
    found = {}
    for array in _arrays(kinds):
        root = array
        while type(root.base) in kinds:
            root = root.base
        if isinstance(root.base, torch.Tensor):
            found[id(root)] = (root.base, root)
    return list(found.values())


def _with_subclasses(kind: type) -> list[type]:
    found = [kind]
    for each in found:
        found += type.__subclasses__(each)
    return found


def _arrays(kinds: frozenset[type]) -> Iterator[Any]:
    """Arrays of ``kinds``, some of them more than once. The collector does not follow arrays: what refers to them is
    asked, and so are containers that it does not follow because they hold nothing else."""
    asked = kinds | {dict, tuple}
    for held in _held():
        for thing in [each for each in held if type(each) in asked]:
            if type(thing) in kinds:
                yield thing
            elif thing and not gc.is_tracked(thing):
                yield from (each for each in gc.get_referents(thing) if type(each) in kinds)


def _held() -> Iterator[Iterable[Any]]:
    """Referents of variables and objects, in parts."""
    yield list(_variables())
    holders = [thing for thing in gc.get_objects() if type(thing) not in _HOLD_NONE]
    for at in range(0, len(holders), _MANY):
        yield gc.get_referents(*holders[at : at + _MANY])


def _variables() -> Iterator[Any]:
    """Values of variables of the functions that run, in all threads."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            optimized = frame.f_code.co_flags & inspect.CO_OPTIMIZED
            if optimized and "locals" not in frame.f_code.co_names:
                variables = frame.f_locals
                yield from list(variables.values())
                if type(variables) is dict:  # a copy, which would keep them alive
                    variables.clear()
            frame = frame.f_back
