"""Results of ops on fake tensors, remembered by the layouts of the operands.

A step runs the same op on tensors of the same layouts again and again: in each layer, micro-batch and recomputation.
PyTorch remembers results, too, but describes each operand by seventeen properties, one by one. Here the set of dispatch
keys stands for most of them, and operands for which it cannot are left to PyTorch: sparse, nested, quantized and
conjugate ones, those of inference mode, and those whose values are known. What an op returns is learnt from what it
returned before, so that all corrections of the mode are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tensortide.recorder.pretended_devices import current_device
from tensortide.recorder.schema import schema_of
from tensortide.recorder.torch_compat import FakeTensor, OpOverload, dispatch_keys, guard_of_data

_PLAIN = frozenset({int, str, type(None), torch.dtype, torch.layout, torch.memory_format})
_TYPED = frozenset({bool, float, complex})
"""Types of numbers that equal integers, but may mean something else."""
_NAMESPACES = frozenset({"aten", "prims", "_c10d_functional", "fsdp"})
"""Namespaces of ops whose results follow from layouts alone; the fake kernels of other libraries may do anything."""
_OTHERWISE = frozenset({torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
"""Tags of ops that change the layout of an operand, or whose results follow from values."""
_make_subclass: Any = torch.Tensor._make_subclass
"""PyTorch's own method, which a capture replaces."""


class _Made(NamedTuple):
    """A tensor that an op returns, on a new storage or on that of the operand ``of``; ``state`` is its state in
    Python."""

    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    of: int | None
    state: dict[str, Any]


class Call(NamedTuple):
    """An op with the layouts of its operands, and the tensors among these."""

    key: tuple[Any, ...]
    tensors: list[FakeTensor]


class _CannotMake(Exception):
    """A result that is not made of what is remembered."""


class Results:
    """Results of ops on the fake tensors of ``mode``."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._guard = guard_of_data(mode)
        self._known: dict[tuple[Any, ...], tuple[type, list[Any]] | None] = {}
        """The type of what a call returns (``object``: a single result), and for each result a new tensor, the number
        of the operand that is returned, or None; None for a call whose results cannot be made."""
        self._ops: dict[int, tuple[Any, bool]] = {}
        """Ops by their ``id``, as their hash takes longer, and whether their results follow from layouts."""
        self._plain: dict[int, bool] = {}
        """Sets of dispatch keys, and whether dtype, shape, strides and offset describe a tensor that has them."""

    def call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
        """Describe a call; None for one whose results are not remembered."""
        known = self._ops.get(id(func))
        if known is None:
            known = self._ops[id(func)] = func, _follows(func)
        if not known[1]:
            return None
        key: list[Any] = [id(func), torch.get_default_dtype(), *kwargs]
        tensors: list[FakeTensor] = []
        if not self._describe(args, key, tensors) or (kwargs and not self._describe(kwargs.values(), key, tensors)):
            return None
        return Call(tuple(key), tensors)

    def _describe(self, values: Iterable[Any], key: list[Any], tensors: list[FakeTensor]) -> bool:
        """Append a description of ``values`` to ``key``, and the tensors among them to ``tensors``. Returns False for
        values that are not described."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if (keys := self._keys(value)) is None:
                    return False
                tensors.append(value)
                key += (keys, value.dtype, value.shape, value.stride(), value.storage_offset())
                key += (value.fake_device, value.requires_grad)
            elif kind in _PLAIN:
                key.append(value)
            elif kind in _TYPED:
                key += (kind, value)
            elif kind is list or kind is tuple:
                key += (list, len(value))
                if not self._describe(value, key, tensors):
                    return False
            elif kind is torch.device:
                key += (value, current_device())  # which one without a number is
            else:
                return False
        return True

    def _keys(self, value: Any) -> int | None:
        """The dispatch keys of a tensor that its dtype, shape, strides and offset describe; None for anything else."""
        if type(value) is not FakeTensor or value.constant is not None or value.fake_mode is not self._mode:
            return None
        keys: int = dispatch_keys(value).raw_repr()
        plain = self._plain.get(keys)
        if plain is None:
            other = value.is_nested or value.is_quantized or value.is_conj() or value.is_neg() or value.is_inference()
            plain = self._plain[keys] = value.layout == torch.strided and not other
        return keys if plain else None

    def of(self, call: Call) -> Any:
        """Make the results of ``call``; NotImplemented if they are not known."""
        known = self._known.get(call.key)
        if known is None:
            return NotImplemented
        kind, parts = known
        made = [self._made(each, call.tensors) for each in parts]
        return made[0] if kind is object else kind(made)

    def _made(self, part: Any, tensors: Sequence[FakeTensor]) -> Any:
        if type(part) is not _Made:
            return None if part is None else tensors[part]
        if part.of is None:
            outline = torch.empty_strided(part.shape, part.stride, dtype=part.dtype, device="meta")
        else:
            outline = torch.empty(0, dtype=part.dtype, device="meta")
            outline.set_(tensors[part.of].untyped_storage(), part.offset, part.shape, part.stride)
        made = _make_subclass(FakeTensor, outline, False, dispatch_device=True, device_for_backend_keys=part.device)
        self._guard(made)
        made.__dict__.update(part.state)
        return made

    def learn(self, call: Call, result: Any) -> None:
        """Remember what ``call`` has returned, if it can be made again."""
        if call.key in self._known:
            return
        kind = type(result)
        results = result if kind in (list, tuple) else (result,)
        try:
            parts = [self._learnt(each, call.tensors) for each in results]
        except _CannotMake:
            self._known[call.key] = None
            return
        fresh = [_storage(each) for each, part in zip(results, parts, strict=True) if _is_fresh(part)]
        single = len(fresh) == len(set(fresh))  # else results share a storage that is no operand's
        self._known[call.key] = (kind if kind in (list, tuple) else object, parts) if single else None

    def _learnt(self, result: Any, tensors: Sequence[FakeTensor]) -> Any:
        """The part of what a call returns that is ``result``. Raises _CannotMake for one that cannot be made."""
        if result is None:
            return None
        for number, tensor in enumerate(tensors):
            if tensor is result:
                return number
        keys = self._keys(result)
        if keys is None or result.requires_grad:
            raise _CannotMake
        storage = _storage(result)
        owners = [number for number, tensor in enumerate(tensors) if _storage(tensor) == storage]
        of = owners[0] if owners else None
        layout = result.shape, result.stride(), result.storage_offset()
        state = dict(vars(FakeTensor(self._mode, torch.empty(0, device="meta"), result.fake_device)))
        part = _Made(*layout, result.dtype, result.fake_device, of, state)
        again = self._made(part, tensors)
        same = again.untyped_storage().nbytes() == result.untyped_storage().nbytes() and self._keys(again) == keys
        if len(owners) > 1 or not same:
            raise _CannotMake
        return part


def _follows(func: Any) -> bool:
    """True for an op whose results follow from the layouts of its operands, and that leaves these as they are."""
    if type(func) is not OpOverload or func.namespace not in _NAMESPACES or not _OTHERWISE.isdisjoint(func.tags):
        return False
    schema = schema_of(func)
    return not schema.may_resize and not schema.fresh and "as_strided" not in schema.name  # which looks at all bytes


def _storage(tensor: FakeTensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_fresh(part: Any) -> bool:
    return type(part) is _Made and part.of is None
