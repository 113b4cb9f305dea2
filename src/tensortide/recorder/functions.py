"""Calls of custom autograd functions, forward and backward, followed from outside.

A custom function creates its autograd node first and runs its forward without gradients: neither the gradient mode nor
the ops inside lead from the node to the call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, _SingleLevelFunction


class Functions:
    """Custom functions that are running. ``created`` receives the number of each node and the frame of the call."""

    def __init__(self, created: Callable[[int, FrameType], None]) -> None:
        self._created = created
        self._forward = [False]
        self._backward: list[bool] = []

    @property
    def recorded(self) -> bool:
        """True inside a forward that autograd records, although gradients are off while it runs."""
        return self._forward[-1]

    @property
    def differentiated(self) -> bool:
        """True inside a backward that is itself differentiated (``create_graph``)."""
        return self._backward[-1]

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Follow every call while active: of functions, and of ``apply`` that was looked up before."""
        forward: Any = _SingleLevelFunction
        backward: Any = BackwardCFunction
        apply, chosen = vars(forward).get("apply"), backward._get_user_fn

        def watched(function: Any, *args: Any, **kwargs: Any) -> Any:
            self._created(torch._C._autograd._get_sequence_nr(), sys._getframe(1))
            self._forward.append(torch.is_grad_enabled() or self._forward[-1])
            inherited: Any = super(forward, function)
            try:
                return inherited.apply(*args, **kwargs)
            finally:
                self._forward.pop()

        forward.apply = classmethod(watched)
        backward._get_user_fn = lambda node: functools.partial(self.run_backward, chosen(node))
        try:
            yield
        finally:
            backward._get_user_fn = chosen
            if apply is None:
                del forward.apply
            else:
                forward.apply = apply

    def run_backward(self, backward: Callable[..., Any], *args: Any) -> Any:
        """Run the ``backward`` of a function."""
        self._forward.append(False)
        self._backward.append(torch.is_grad_enabled())
        try:
            return backward(*args)
        finally:
            self._forward.pop()
            self._backward.pop()
