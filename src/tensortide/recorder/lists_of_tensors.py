"""Tensors made of lists of fake tensors, as ``torch.tensor([loss, norm])``: PyTorch reads each one's memory for it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor, device_constructors


@contextlib.contextmanager
def made_of_lists() -> Iterator[None]:
    """Let functions that make a tensor of a list take fake tensors in it while active."""
    device_constructors()  # PyTorch remembers these functions when it is first asked: not ours
    with (
        replaced(torch, "tensor", _made(torch.tensor)),
        replaced(torch, "as_tensor", _made(torch.as_tensor)),
        replaced(FakeTensor, "new_tensor", _made(torch.Tensor.new_tensor, place=1)),
    ):
        yield


def _made(make: Callable[..., torch.Tensor], place: int = 0) -> Callable[..., torch.Tensor]:
    """Wrap ``make``, whose list is argument ``place``: it makes a tensor of numbers, to which fake ones are copied."""

    @functools.wraps(make)
    def of_list(*args: Any, **kwargs: Any) -> torch.Tensor:
        data = args[place] if len(args) > place else None
        if type(data) not in (list, tuple) or not any(isinstance(each, torch.Tensor) for each in _leaves(data)):
            return make(*args, **kwargs)
        leaves = list(_leaves(data))
        if not place and kwargs.get("dtype") is None:  # a new tensor is like the one whose method makes it
            kwargs["dtype"] = functools.reduce(torch.promote_types, map(_dtype, leaves))
        made = make(*args[:place], _numbers(data), *args[place + 1 :], **kwargs)
        with torch.no_grad():
            flat = made.view(-1)
            for index, leaf in enumerate(leaves):
                if isinstance(leaf, torch.Tensor):
                    flat[index].copy_(leaf.detach().reshape(()))
        return made

    return of_list


def _leaves(data: Any) -> Iterator[Any]:
    for each in data:
        if type(each) in (list, tuple):
            yield from _leaves(each)
        else:
            yield each


def _numbers(data: Any) -> Any:
    """The nested list ``data`` with a number in place of each tensor."""
    if type(data) in (list, tuple):
        return [_numbers(each) for each in data]
    return 0 if isinstance(data, torch.Tensor) else data


def _dtype(leaf: Any) -> torch.dtype:
    return leaf.dtype if isinstance(leaf, torch.Tensor) else torch.tensor(leaf).dtype
