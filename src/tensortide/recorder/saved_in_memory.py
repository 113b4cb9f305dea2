"""Contents of files that were not written, in memory: tensors by their shapes, which is all that fake ones have."""

from __future__ import annotations

import functools
import io
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import torch

Unwritten = dict[str, "Content"]
"""Contents of files that were not written, by their real paths."""


class Content(bytes):
    """The content of a file, and when it was written."""

    written_s: float


def content(value: Any) -> Content:
    """``value`` as the content of a file that is written now."""
    made = Content(pickled(value))
    made.written_s = time.time()
    return made


def pickled(value: Any) -> bytes:
    """``value`` as bytes, its tensors without their contents; empty if it cannot be pickled."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, NotImplementedError):
        return b""
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Pickles tensors as what they need to be made anew, so that a file holds none of them resident."""

    def reducer_override(self, value: Any) -> Any:
        """As the base class."""
        if not isinstance(value, torch.Tensor) or not _is_plain(value):
            return NotImplemented
        layout = tuple(value.shape), value.stride(), value.dtype, str(value.device)
        return _made, (*layout, value.requires_grad and value.is_leaf, isinstance(value, torch.nn.Parameter))


def _is_plain(value: torch.Tensor) -> bool:
    wraps = type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and hasattr(
        value, "__tensor_flatten__"
    )
    return value.layout is torch.strided and not wraps


def _made(shape: Any, stride: Any, dtype: torch.dtype, device: str, needs_grad: bool, is_parameter: bool) -> Any:
    """A tensor like one that was saved."""
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    return torch.nn.Parameter(made, requires_grad=needs_grad) if is_parameter else made.requires_grad_(needs_grad)


def loading(function: Callable[..., Any], unwritten: Unwritten) -> Callable[..., Any]:
    """``torch.load``, or another function that reads a file, for those that were not written."""

    @functools.wraps(function)
    def loaded(file: Any, *args: Any, **kwargs: Any) -> Any:
        held = _content(file, unwritten)
        if held is None:
            return function(file, *args, **kwargs)
        where = kwargs.get("map_location", kwargs.get("device", args[0] if args else None))
        return _moved(pickle.loads(held), where)

    return loaded


def _content(file: Any, unwritten: Unwritten) -> bytes | None:
    """The pickled content of a file that was not written; None for another one."""
    if isinstance(file, (str, os.PathLike)):
        return unwritten.get(os.path.realpath(os.fsdecode(file))) or None
    if isinstance(file, io.BytesIO):
        rest = file.getvalue()[file.tell() :]
        return rest if rest and (rest in unwritten.values() or _MADE in rest) else None
    return None


_MADE = _made.__module__.encode()
"""Text in a pickle of tensors that were saved without their contents."""


def _moved(value: Any, where: Any) -> Any:
    """``value`` with its tensors on the device ``where``, if that names one."""
    if isinstance(where, (str, int, torch.device)):
        if isinstance(value, torch.Tensor):
            return value.to(where)
        if isinstance(value, dict):
            for key in value:
                value[key] = _moved(value[key], where)
        elif isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(_moved(each, where) for each in value)
    return value
