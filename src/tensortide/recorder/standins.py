"""Stand-ins for the objects that the user's step works on.

Tensors get fake ones without data, or clones for a capture on real tensors. Iterators of data get a proxy that gives
back what a capture takes from them, and that keeps loading out of the step.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from tensortide.errors import CaptureError
from tensortide.recorder.known import KNOWN_NUMEL
from tensortide.recorder.pretended import unpretended
from tensortide.recorder.sparse import has_parts, parts
from tensortide.recorder.subclasses import is_object, of_class
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    FakeTensor,
    LoaderIterator,
    UnsupportedFakeTensorException,
    disable_current_modes,
    pytree,
)

_SOURCES = ("builtins", "itertools")


def fakes(mode: Any) -> Callable[[torch.Tensor], Any]:
    """A function from a real tensor to a fake one of ``mode``; aliases and ties stay aliases and ties."""
    copied = clones()

    def replace(value: torch.Tensor) -> Any:
        _refuse_lazy(value)
        if isinstance(value, FakeTensor):
            return value
        if is_object(value):
            return of_class(mode.from_tensor(_plain(value)), value)
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            if type(value).__torch_dispatch__ != torch.Tensor.__torch_dispatch__:
                return value
            value = _plain(value)  # a subclass of no other ops: a fake tensor is of one class only
        if is_constant(value) or _keeps_values(value):
            with disable_current_modes():
                constant = copied(value.detach())
            return mode.fake_tensor_converter.from_real_tensor(mode, constant, make_constant=True)
        try:
            fake = mode.from_tensor(value)
        except UnsupportedFakeTensorException as error:
            kind = f"{str(value.dtype)[6:]}{list(value.shape)}"
            raise CaptureError(f"a tensor {kind} of the step has no fake form: {error}") from error
        if parts(value):
            return has_parts(fake, value, mode.from_tensor)
        if value.layout == torch.strided and fake.untyped_storage().nbytes() < value.untyped_storage().nbytes():
            fake.untyped_storage().resize_(value.untyped_storage().nbytes())  # a view keeps all of its base alive
        return fake

    return replace


def _plain(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().as_subclass(torch.Tensor)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=value.requires_grad)
    return plain.requires_grad_(value.requires_grad)


def _refuse_lazy(value: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(value) and not isinstance(value, FakeTensor):
        raise CaptureError("a lazy module has no shapes yet: run it once on real data before capturing the step")


def is_constant(value: torch.Tensor) -> bool:
    """True for a tensor of one element, whose value is kept: an optimizer's counter, say, which Python code reads."""
    return not torch.nn.parameter.is_lazy(value) and value.numel() == 1 and _may_be_known(value)


def _keeps_values(value: torch.Tensor) -> bool:
    """True for a small tensor of integers or booleans: lengths, indices or a mask."""
    whole = not (value.is_floating_point() or value.is_complex() or value.is_quantized)
    return whole and value.numel() <= KNOWN_NUMEL and _may_be_known(value)


def _may_be_known(value: torch.Tensor) -> bool:
    strided = value.layout == torch.strided and value._base is None
    return strided and value.device.type == "cpu" and not value.requires_grad


def clones() -> Any:
    """A function from a real tensor to a copy of it; tensors that share a storage share the copy."""
    storages: dict[int, torch.UntypedStorage] = {}
    keep: list[torch.UntypedStorage] = []
    made: set[int] = set()

    def replace(value: torch.Tensor) -> torch.Tensor:
        _refuse_lazy(value)
        if value.layout != torch.strided or isinstance(value, FakeTensor) or is_object(value):
            return value
        if value.is_quantized:  # its scales are not in the storage
            return value.clone()
        storage = value.untyped_storage()
        if storage._cdata in made:  # it is a copy
            return value
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone()
            made.add(storages[storage._cdata]._cdata)
            keep.append(storage)
        copy = torch.empty(0, dtype=value.dtype, device=value.device)
        copy.set_(storages[storage._cdata], value.storage_offset(), value.shape, value.stride())
        if isinstance(value, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=value.requires_grad)
        elif value.requires_grad:
            copy.requires_grad_()
        if value.is_leaf and value.grad is not None:
            copy.grad = replace(value.grad)
        return copy

    return replace


def hooks_of(tensor: torch.Tensor) -> list[dict[int, Any]]:
    """The tables of gradient hooks that ``tensor`` has."""
    return [hooks for hooks in (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)) if hooks]


def copy_hooks(source: torch.Tensor, target: torch.Tensor) -> None:
    """Give the stand-in the attributes and gradient hooks of the tensor it stands for."""
    for name, item in getattr(source, "__dict__", {}).items():
        if name not in target.__dict__:
            target.__dict__[name] = item
    if not target.requires_grad:
        return
    for hook in list((source._backward_hooks or {}).values()):
        target.register_hook(hook)
    if target.is_leaf:
        for hook in list((getattr(source, "_post_accumulate_grad_hooks", None) or {}).values()):
            target.register_post_accumulate_grad_hook(hook)


# -- data iterators ---------------------------------------------------------------------------------


class Batches(Iterator[Any]):
    """Proxy of a data iterator during capture. ``replace`` turns its items into stand-ins."""

    def __init__(self, source: Iterator[Any], replace: Callable[[Any], Any]) -> None:
        self._given = self._source = source
        with contextlib.suppress(TypeError):  # a cycle keeps its items, and must not keep stand-ins
            self._source = _twin(source)
        self._replace = replace
        self._taken: list[Any] = []
        self._back: Iterator[Any] | None = None

    def __next__(self) -> Any:
        with disable_current_modes(), unpretended():
            item = next(self._source)
            if not any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(item)):
                self._taken.append(item)  # an item made from stand-ins is of no use to the user
            return self._replace(item)

    def __getattr__(self, name: str) -> Any:
        """Pass on the other methods of a generator: send, throw, close."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)

    def given_back(self) -> Iterator[Any]:
        """The iterator as it was before anything was taken from it; the same object for all its holders."""
        if self._source is not self._given:
            return self._given
        if self._back is None:
            self._back = itertools.chain(self._taken, self._source) if self._taken else self._source
        return self._back


def _twin(source: Iterator[Any]) -> Any:
    """A copy of an iterator at the same position: of one over a list or the like, a cycle or a chain of such. Raises
    TypeError if it cannot be copied."""
    if type(source).__module__ not in _SOURCES or type(source).__name__ in ("_tee", "callable_iterator"):
        raise TypeError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copying iterators is deprecated in newer Pythons
        reduced: Any = source.__reduce__()  # a generator has none
    kind, args, *state = reduced
    twin = kind(*[_twin(part) if isinstance(part, Iterator) else part for part in args])
    if state and state[0] is not None:
        twin.__setstate__(tuple(map(_repeatable, state[0])) if isinstance(state[0], tuple) else state[0])
    return twin


def _repeatable(part: Any) -> Any:
    if isinstance(part, Iterator):
        return _twin(part)
    return list(part) if type(part) is list else part


def is_source(value: Any) -> bool:
    """True for an iterator whose only state is its position. One of a user's own class is an ordinary object."""
    if not isinstance(value, Iterator) or isinstance(value, io.IOBase):
        return False
    return type(value).__module__ in _SOURCES or isinstance(value, LoaderIterator)


def loaders(replace: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Let data loaders load real data and hand out batches changed by ``replace``, while active."""
    iterate = DataLoader.__iter__

    def batches(loader: DataLoader[Any]) -> Any:
        with disable_current_modes(), unpretended():
            return Batches(iterate(loader), replace)

    return replaced(DataLoader, "__iter__", batches)
