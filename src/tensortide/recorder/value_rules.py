"""Stand-ins for values of the results of an op, which follow from those of its operands."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tensortide.recorder.known import KNOWN_NUMEL
from tensortide.recorder.readings import Number
from tensortide.recorder.torch_compat import FakeTensor, OpOverload, disable_current_modes, pytree
from tensortide.recorder.values import Picked, Values

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
_GIVEN_NUMEL = 4
"""Elements of a tensor of given numbers, such as tokens that end a sequence, at most: labels are many."""
Rule = Callable[[Any, Values, Sequence[Any], Mapping[str, Any], Any], Any]
"""A function of the op, the Values, the arguments and the result that returns the stand-in for the result; None stands
for the default one."""


def _pointwise(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """Arithmetic on the stand-ins of the operands."""
    if not isinstance(result, torch.Tensor) or "out" in kwargs:
        return None
    if func._schema.is_mutable:
        func = _functional(func)
        if func is None:
            return None

    def scalar(tensor: torch.Tensor) -> torch.Tensor:
        return torch.full((), values.known_or_guessed(tensor), dtype=tensor.dtype, device="cpu")

    picked = any(type(getattr(arg, "guess", None)) is Picked for arg in args)
    name = func._schema.name.removeprefix("aten::")
    if picked and name in ("eq", "ne") and any(_is_given(arg) for arg in args):
        values.picked = True
        return name == "ne"
    with disable_current_modes():
        positional, named = pytree.tree_map_only(torch.Tensor, scalar, (list(args), dict(kwargs)))
        named.pop("device", None)
        try:
            found = func(*positional, **named).item()
        except (RuntimeError, TypeError, NotImplementedError):
            return None
    return Picked(found) if picked and type(found) is int else found


def _is_given(arg: Any) -> bool:
    """True for a number, or a few whose values are known."""
    constant = getattr(arg, "constant", None)
    return isinstance(arg, (int, float)) or (constant is not None and constant.numel() <= _GIVEN_NUMEL)


@functools.cache
def _functional(func: Any) -> Any:
    packet = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::").rstrip("_"), None)
    return getattr(packet, func._overloadname, None)


def _same(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The stand-in of the first operand, which views, copies, and reductions of equal elements preserve."""
    del func, kwargs, result
    parts = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    picked = [each.guess for each in parts if type(getattr(each, "guess", None)) is Picked]
    return picked[0] if picked else values.known_or_guessed(parts[0])


def _summed(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    return _same(func, values, args, kwargs, result) * args[0].numel() // max(1, result.numel())


def _evenly(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The count of elements in each bin, as if they were spread evenly: tokens among experts."""
    del func, values, kwargs
    return args[0].numel() // max(1, result.numel())


def _within(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The middle of the range of ``randint`` and ``random_``."""
    del values, result, kwargs
    given: dict[str, Any] = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False))
    low = given["low"] if "low" in given else given.get("from", 0)
    high = given["high"] if "high" in given else given.get("to")
    return low + 1 if high is None else (low + high) // 2


def _isin(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    del func, kwargs, result
    values.picked |= type(getattr(args[0], "guess", None)) is Picked
    return False


def _always(value: Number) -> Rule:
    return lambda *_: value


_SAME = (
    "all any max min amax amin mean median nanmedian mode clone _to_copy contiguous index_select gather take repeat "
    "lift_fresh flip roll sort cummax cummin constant_pad_nd cat stack index masked_select"
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    "sum": _summed,
    "randint": _within,
    "randint_like": _within,
    "random": _within,
    "rand": _always(0.5),
    "rand_like": _always(0.5),
    **dict.fromkeys(("argmax", "argmin", "argsort", "multinomial"), _always(Picked(0))),
    "searchsorted": _always(0),
    "bucketize": _always(0),
    "isin": _isin,
    "histc": _evenly,
}
"""Rules by the name of an op, without the underscore of its in-place form."""
_MOVING = frozenset(
    f"_c10d_functional::{name}" for name in ("all_to_all_single", "all_gather_into_tensor", "broadcast", "wait_tensor")
)
"""Collectives whose results are elements of ranks, which are taken to have like ones."""
_MAKERS = frozenset(name for name, rule in _RULES.items() if rule not in (_same, _summed))


@functools.cache
def _rule(func: Any) -> tuple[Rule | None, bool]:
    """The rule of an op, and whether it holds whatever the operands are."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        moves = isinstance(func, OpOverload) and func._schema.name in _MOVING
        return (_same, False) if moves else (None, False)
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    if name in _RULES:
        return _RULES[name], name in _MAKERS
    if torch.Tag.pointwise in func.tags:
        return _pointwise, False
    return (_same, False) if func.is_view else (None, False)


def follow(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Give the results of an op the stand-ins that follow from its operands."""
    _follow(func, values, args, kwargs, result)
    if isinstance(result, (tuple, list)) and getattr(func, "_schema", None) is not None:
        for index in result[1:] if func._schema.name in _PICKING else ():
            if isinstance(index, FakeTensor) and index.dtype == torch.int64 and index.constant is None:
                index.guess = Picked(0)  # type: ignore[attr-defined]


_PICKING = frozenset(
    f"aten::{name}" for name in ("max", "min", "topk", "sort", "kthvalue", "median", "mode", "cummax", "cummin")
)
"""Ops whose further results are places of elements."""


def _follow(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    rule, always = _rule(func)
    if rule is None:
        return
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    if type(first) is not FakeTensor or first.constant is not None:
        return
    if first.dtype != torch.bool:
        if first.is_floating_point() and first.numel() > KNOWN_NUMEL:  # too large to be read
            return
        if not always and not any(_guessed(arg) for arg in args):
            return
    guess = rule(func, values, args, kwargs, first)
    first.guess = guess if guess is None or math.isfinite(guess) else None  # type: ignore[attr-defined]
    for more in result[1:] if first is not result else ():
        if isinstance(more, FakeTensor):
            more.guess = guess if more.dtype == first.dtype else 0  # type: ignore[attr-defined]


def _guessed(arg: Any) -> bool:
    if isinstance(arg, (list, tuple)):
        return bool(arg) and _guessed(arg[0])
    return type(arg) is FakeTensor and (getattr(arg, "guess", None) is not None or arg.dtype == torch.bool)
