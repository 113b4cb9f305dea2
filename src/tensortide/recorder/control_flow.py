"""Conditionals and loops that PyTorch keeps as one op: run their bodies so that their ops are recorded.

A ``torch.cond`` whose predicate is known runs the branch taken. Where it is unknown (fake tensors) both
branches are recorded, each op marked with its branch, and gradients flow into both.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.errors import DataDependent
from tensortide.graph.model import Branch
from tensortide.recorder.context import Tracker
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    DispatchKey,
    FakeTensor,
    HigherOrderOperator,
    TorchDispatchMode,
    current_mode,
    disable_current_modes,
    pytree,
    without_last_mode,
)


class _Merge(torch.autograd.Function):
    """The result of the first branch; both branches receive its gradient."""

    @staticmethod
    def forward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        del ctx, second
        return first.view_as(first)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        del ctx
        return gradient, gradient


@contextlib.contextmanager
def followed(tracker: Tracker | None = None, recorder: Recorder | None = None) -> Iterator[None]:
    """Run conditionals and loops op by op while active; PyTorch would compile each before it runs, even eagerly."""
    compiled = torch.compile

    @functools.wraps(compiled)
    def compile_(model: Any = None, **options: Any) -> Any:
        match _kind(model):
            case "cond":
                return functools.partial(_cond, tracker, recorder)
            case "while_loop":
                return _while_loop
            case "scan" | "strict_mode":
                return model
        return compiled(model, **options)

    with replaced(torch, "compile", compile_), _operators_passed():
        yield


@contextlib.contextmanager
def _operators_passed() -> Iterator[None]:
    """Make higher-order operators reach modes with ``supports_higher_order_operators`` while active. PyTorch before 2.7
    refuses to call them under a mode that it does not know."""
    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        yield
        return
    kind: Any = HigherOrderOperator
    dispatch = kind.dispatch

    def passed(operator: Any, key: Any, /, *args: Any, **kwargs: Any) -> Any:
        mode: Any = current_mode() if key == DispatchKey.Python else None
        if not getattr(mode, "supports_higher_order_operators", False):
            return dispatch(operator, key, *args, **kwargs)
        with without_last_mode():
            return mode.__torch_dispatch__(operator, (), args, kwargs)

    kind.dispatch = passed
    try:
        yield
    finally:
        kind.dispatch = dispatch


def _kind(model: Any) -> str:
    """Name of the higher-order operator that PyTorch is about to compile; anything else gives another name, or none."""
    if isinstance(model, HigherOrderOperator):
        return str(model.name())
    inside = str(getattr(model, "__module__", "")).startswith("torch._higher_order_ops.")
    return str(model.__qualname__).split(".")[0] if inside else ""


def _cond(
    tracker: Tracker | None,
    recorder: Recorder | None,
    predicate: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Any,
) -> Any:
    taken = _value(predicate)
    if taken is not None:
        return true_fn(*operands) if taken else false_fn(*operands)
    if tracker is None or recorder is None:
        return _merged(true_fn(*operands), false_fn(*operands))
    conditional, outer = len(tracker.branches), tracker.branch
    tracker.branches += [Branch(conditional, 0, outer), Branch(conditional, 1, outer)]
    try:
        tracker.branch = conditional
        first = true_fn(*operands)
        tracker.branch = conditional + 1
        second = false_fn(*operands)
        tracker.branch, recorder.paused = outer, True
        return _merged(first, second)
    finally:
        tracker.branch, recorder.paused = outer, False


def _merged(first: Any, second: Any) -> Any:
    def merge(a: Any, b: Any) -> Any:
        needs = isinstance(a, torch.Tensor) and (a.requires_grad or b.requires_grad)
        return _Merge.apply(a, b) if needs else a

    return pytree.tree_map(merge, first, second)


def _value(predicate: Any) -> bool | None:
    """The value of a predicate; None if it is unknown."""
    known = predicate.constant if isinstance(predicate, FakeTensor) else predicate
    with disable_current_modes():
        return None if known is None else bool(known)


def _while_loop(condition: Callable[..., Any], body: Callable[..., Any], carried: Any, extra: Any = ()) -> Any:
    carried = tuple(carried)
    while True:
        predicate = condition(*carried, *extra)
        going = _value(predicate)
        if going is None:
            raise DataDependent(
                "the trip count of a while_loop depends on the values of tensors, which fake tensors do not have.\n"
                f"{predicate.fake_mode.remedy.sentence}"
            )
        if not going:
            return carried
        carried = tuple(body(*carried, *extra))
