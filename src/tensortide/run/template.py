"""Arguments of an op with holes where tensors go, so that it can be recomputed without keeping any tensor alive."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

Storage = torch.UntypedStorage
storage_of = torch.Tensor.untyped_storage
"""As it was before anybody replaced it."""
_EXACT = frozenset({int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_PLAIN = frozenset({*_EXACT, bool, float, complex, list, tuple})
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


class Hole(NamedTuple):
    """A tensor argument: its place among the tensors of the call, and how it views its storage."""

    place: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugated: bool
    negative: bool


Template: TypeAlias = Any
"""A value with Holes for tensors; lists and tuples keep their kind."""
_new = tuple.__new__
_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COLUMNS),
}
"""Parts of sparse tensors."""


def frozen(values: Iterable[Any], tensors: list[torch.Tensor], marks: list[Any]) -> list[Template]:
    """``values`` with holes; their tensors are appended to ``tensors``, and to ``marks`` what tells apart calls of one
    op that allocate different memory: all but the values of numbers that are no integers."""
    found: list[Template] = []
    for value in values:
        kind = type(value)
        if kind in _TENSORS or (kind not in _PLAIN and isinstance(value, torch.Tensor)):
            hole = _hole(value, len(tensors))
            tensors.append(value)
            marks.append(hole)
            found.append(hole)
        elif kind in _EXACT:
            marks.append(value)
            found.append(value)
        elif kind is list or kind is tuple:
            if type(value[0] if value else 0) is int:  # then all of them are
                marks.append(tuple(value))
                found.append(value)
            else:
                marks.append(len(value))
                found.append(kind(frozen(value, tensors, marks)))
        else:
            marks += (kind, value) if kind is bool else (kind,)
            found.append(value)
    return found


def _hole(t: torch.Tensor, place: int) -> Hole:
    return _new(Hole, (place, t.dtype, t.size(), t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()))


def thawed(template: Template, storages: Sequence[Storage | None]) -> Any:
    """``template`` with tensors over ``storages``, one for each place; where there is none, what is in them does not
    matter."""
    if isinstance(template, Hole):
        storage = storages[template.place]
        return view(template, storage) if storage is not None else _scratch(template, storages)
    kind = type(template)
    if kind is list or kind is tuple:
        return kind([thawed(item, storages) for item in template])
    return template


def view(hole: Hole, storage: Storage) -> torch.Tensor:
    """The tensor that ``hole`` describes."""
    _, dtype, size, stride, offset, conjugated, negative = hole
    tensor = _empty(dtype, storage.device).detach().set_(storage, offset, size, stride)
    if conjugated:
        tensor = torch._conj(tensor)
    return torch._neg_view(tensor) if negative else tensor


@functools.cache
def _empty(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An ordinary tensor without memory; a copy of it takes half the time that another one from the start does."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=dtype, device=device)


def _scratch(hole: Hole, storages: Sequence[Storage | None]) -> torch.Tensor:
    """A tensor whose contents do not matter: running statistics, say."""
    device = next(other.device for other in storages if other is not None)
    return _empty(hole.dtype, device).new_empty(hole.size)


def tensors_of(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors in arguments or results, in order."""
    found: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        if kind in _TENSORS or (kind not in _EXACT and isinstance(value, torch.Tensor)):
            found.append(value)
        elif kind is list or kind is tuple:
            found += tensors_of(value)
    return found


def stored(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """``tensors``; instead of sparse ones, which have no storage, what they consist of; without zeros that have a
    size but no memory."""
    found: list[torch.Tensor] = []
    for tensor in tensors:
        if tensor.layout is torch.strided:
            found += [] if tensor._is_zerotensor() else [tensor]
        else:
            found += [getattr(tensor, part)() for part in _PARTS.get(tensor.layout, ())]
    return found
