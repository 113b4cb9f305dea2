"""Ops whose results are known under fake tensors: constants, and results whose number of elements the user gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tensortide.recorder.torch_compat import FakeTensor, by_op, no_dispatch

KNOWN_NUMEL = 4096
"""Most elements of a tensor whose values are kept."""

_aten = torch.ops.aten
_FILLED: dict[Any, float | None] = {
    **dict.fromkeys([_aten.zeros.default, _aten.new_zeros.default], 0),
    **dict.fromkeys([_aten.ones.default, _aten.new_ones.default], 1),
    _aten.new_full.default: None,
}
"""Ops that fill a tensor, with the value; None stands for their third argument."""
_COMPUTED = frozenset(
    (
        *(_aten.arange.default, _aten.arange.start, _aten.arange.start_step, _aten.linspace.default),
        *(_aten.full.default, _aten.logspace.default, _aten.eye.default, _aten.eye.m, _aten.scalar_tensor.default),
        *(_aten.tril_indices.default, _aten.triu_indices.default),
    )
)
"""Ops whose kernel computes the result from numbers among the arguments alone."""

_GROWING = frozenset(
    [
        *(_aten.repeat.default, _aten.constant_pad_nd.default, _aten.new_zeros.default, _aten.new_ones.default),
        *(_aten.new_full.default, _aten.new_empty.default, _aten.new_empty_strided.default),
    ]
)
"""Ops that make results of any size of a small constant, which must not be computed."""
_RECEIVES: dict[Any, int] = by_op({"c10d.broadcast_.default": 2, "c10d.scatter_.default": 3})
"""Ops that receive what another rank sends, with the place of the argument that names it, after that of their group.

Messages between two ranks are not among these: a stage of a pipeline that is told nothing asks for the shapes it gets.
"""
_BATCH_NORM = _aten.native_batch_norm.default


@contextlib.contextmanager
def forgotten(*tensors: Any) -> Iterator[None]:
    """Forget the values of fake ``tensors`` while active."""
    before = [(tensor, getattr(tensor, "constant", None)) for tensor in tensors]
    for tensor in tensors:
        tensor.constant = None
    try:
        yield
    finally:
        for tensor, constant in before:
            tensor.constant = constant


def unneeded(mode: Any, func: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments whose values a call has no use for, so that PyTorch may answer it from its cache.

    Batch normalization does not compute with the values of its weights; its statistics get others in training. What
    a collective receives from another rank is not known from then on.
    """
    if func in _GROWING:
        return (args[0],)
    if func in _RECEIVES:
        _forget(mode, _received(func, args))
    if func is not _BATCH_NORM:
        return ()
    weight, bias, *statistics, training = args[1:6]
    if training:
        _forget(mode, statistics)
    return tuple(one for one in (weight, bias, *statistics) if type(one) is FakeTensor)


def _forget(mode: Any, tensors: Sequence[Any]) -> None:
    """Forget the values of ``tensors`` and of those that share their memory."""
    for tensor in tensors:
        if getattr(tensor, "constant", None) is not None:
            mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)


def _received(func: Any, args: Sequence[Any]) -> Sequence[Any]:
    """The tensors that a collective fills with values of another rank."""
    root = _RECEIVES[func]
    own = dist.ProcessGroup.unbox(args[root - 1]).rank() == args[root]
    return () if own else args[0]


def constant(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> torch.Tensor | None:
    """The values of the fake ``result`` if ``func`` computes it from numbers alone and it is small, else None."""
    if func not in _COMPUTED and func not in _FILLED:
        return None
    if type(result) is not FakeTensor or result.numel() > KNOWN_NUMEL or result.device.type == "meta":
        return None
    with no_dispatch():
        if func in _COMPUTED:
            return func(*args, **{**kwargs, "device": "cpu"})  # type: ignore[no-any-return]
        value: Any = args[2] if _FILLED[func] is None else _FILLED[func]
        made = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="cpu")
        return made.fill_(value)


def of_numbers(mode: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of an op on numbers alone in place of its tensors, as which PyTorch hands over the constants of
    TorchScript; None for another call."""
    if not args or type(args[0]) not in (bool, float, int) or any(isinstance(each, torch.Tensor) for each in args):
        return None
    tensors = [str(each.type) == "Tensor" for each in func._schema.arguments]
    if not tensors[0]:
        return None
    with no_dispatch():
        given = [
            torch.tensor(each, dtype=torch.float64 if type(each) is float else None) if of_tensor else each
            for each, of_tensor in zip(args, tensors, strict=False)
        ]
        result = func(*given, **kwargs)
    if not isinstance(result, torch.Tensor):
        return result
    return mode.fake_tensor_converter.from_real_tensor(mode, result, make_constant=True)


def _unique(size: int, tensor: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    index = torch.empty(tensor.shape, dtype=torch.int64, device=tensor.device)
    return tensor.new_empty(size), index, index.new_empty(size)


SIZED: dict[Any, Callable[..., Any]] = {
    _aten.nonzero.default: lambda size, mask: mask.new_empty((size, mask.dim()), dtype=torch.int64),
    _aten.masked_select.default: lambda size, values, mask: values.new_empty(size),
    **by_op({"aten._unique2.default": _unique}),
    _aten.unique_consecutive.default: _unique,
    _aten.repeat_interleave.Tensor: lambda size, repeats, **_: repeats.new_empty(size),
    _aten.bincount.default: lambda size, *_, **__: torch.empty(size, dtype=torch.int64),
}
"""Ops whose number of result elements depends on values: functions of that number and the arguments."""
