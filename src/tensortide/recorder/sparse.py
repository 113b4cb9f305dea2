"""Sparse tensors, which have no storage: what they consist of, and their numbers of entries on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensortide.recorder.torch_compat import DynamicOutputShapeException, FakeTensor, by_op, pytree

_ROWS = ("crow_indices", "col_indices", "values")
_COLUMNS = ("ccol_indices", "row_indices", "values")
_PARTS: dict[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COLUMNS),
}
DISTINCT = "entries of sparse tensors are at different places: none are summed where one is coalesced"
"""The assumption about gradients of embeddings."""


def parts(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that ``value`` consists of, if it is sparse."""
    known: tuple[torch.Tensor, ...] | None = getattr(value, "parts", None)
    return known or tuple(getattr(value, name)() for name in _PARTS.get(value.layout, ()))


def has_parts(fake: Any, real: torch.Tensor, replace: Callable[[torch.Tensor], Any]) -> Any:
    """Return ``fake`` with as many entries as the sparse ``real``; ``replace`` makes fake tensors of its parts."""
    fake.parts = tuple(replace(part.detach()) for part in parts(real))
    fake.in_order = real.layout == torch.sparse_coo and real.is_coalesced()
    return fake


def asked(func: Any, args: Sequence[Any]) -> Any:
    """Return what ``func`` asks of a sparse fake tensor: a part, the number of entries, or whether they are in order;
    None if it asks none of these."""
    name = _ASKED.get(func)
    known = getattr(args[0], "parts", None) if name is not None else None
    if name is None or known is None:
        return None
    if name == "_nnz":
        return known[-1].shape[0]
    if name == "is_coalesced":
        return args[0].in_order
    return known[_PARTS[args[0].layout].index(name)]


def coalesced(tensor: Any) -> Any:
    """Return ``tensor`` with each entry at a place of its own, as long as there are places."""
    tensor.fake_mode.answered.add(DISTINCT)
    indices, values = parts(tensor)
    count = min(values.shape[0], torch.Size(tensor.shape[: indices.shape[0]]).numel())
    made = indices.new_empty((indices.shape[0], count)), values.new_empty((count, *values.shape[1:]))
    result: Any = torch.sparse_coo_tensor(*made, tensor.shape, check_invariants=False)
    result.in_order = True
    return result


def masked(tensor: torch.Tensor, mask: torch.Tensor) -> Any:
    """Return the elements of a dense ``tensor`` at the entries of ``mask``."""
    indices, values = parts(mask)
    made = torch.empty_like(indices), torch.empty_like(values, dtype=tensor.dtype)
    return torch.sparse_coo_tensor(*made, mask.shape, check_invariants=False)


def dense(func: Any, args: Sequence[Any]) -> Any:
    """Return the dense result of ``func`` on a sparse tensor, where no kernel can be run; None if there is no rule."""
    name = func._schema.name.removeprefix("aten::")
    if name == "add_":
        return args[0]
    return args[1].new_empty((args[0].shape[0], args[1].shape[1])) if name == "mm" else None


def follow(func: Any, args: Sequence[Any], result: Any) -> None:
    """Give the sparse results of an op their entries. Raises DynamicOutputShapeException if their number depends on
    values."""
    for each in result if isinstance(result, (tuple, list)) else (result,):
        if not isinstance(each, FakeTensor) or each.layout not in _PARTS:
            continue
        name = func._schema.name.removeprefix("aten::")
        if func._schema.is_mutable:
            if name == "_coalesced_":
                each.in_order = args[1]  # type: ignore[attr-defined]
            continue
        given = [t for t in pytree.tree_leaves(args) if isinstance(t, FakeTensor) and t.layout in _PARTS]
        rule = _RULES.get(name)
        if rule is None and len(given) == 1 and torch.Tag.pointwise in func.tags and given[0].layout == each.layout:
            rule = _RULES["clone"]
        if rule is None or (each.layout != torch.sparse_coo and name not in _COMPRESSED):
            raise DynamicOutputShapeException(func)
        each.parts = rule(args, given, each)  # type: ignore[attr-defined]
        count = each.parts[-1].shape[0]  # type: ignore[attr-defined]
        kept = name not in _MIXING and len(given) == 1 and getattr(given[0], "in_order", False)
        each.in_order = kept or count < 2  # type: ignore[attr-defined]


Parts = tuple[torch.Tensor, ...]


def _copied(args: Sequence[Any], given: Sequence[Any], result: torch.Tensor) -> Parts:
    del args
    *indices, values = parts(given[0])
    made = torch.empty_like(values, dtype=result.dtype, device=result.device)
    return *(torch.empty_like(each, device=result.device) for each in indices), made


def _added(args: Sequence[Any], given: Sequence[Any], result: torch.Tensor) -> Parts:
    """All entries of both, one after the other."""
    if len(given) == 1:
        return _copied(args, given, result)
    (first, one), (second, other) = (parts(each) for each in given)
    return torch.cat([first, second], 1), torch.cat([one, other])


def _of_bags(args: Sequence[Any], given: Sequence[Any], result: torch.Tensor) -> Parts:
    """One row for each index that a bag of embeddings holds."""
    del given
    gradient, indices = args[:2]
    return indices.reshape(1, -1), gradient.new_empty((indices.numel(), result.shape[1]))


_RULES: dict[str, Callable[[Sequence[Any], Sequence[Any], torch.Tensor], Parts]] = {
    "_sparse_coo_tensor_with_dims_and_tensors": lambda args, given, result: (args[3], args[4]),
    **dict.fromkeys(("sparse_coo_tensor", "_sparse_coo_tensor_unsafe"), lambda args, given, result: (args[0], args[1])),
    **dict.fromkeys(("detach", "alias"), lambda args, given, result: parts(given[0])),
    **dict.fromkeys(("clone", "_to_copy", "t", "transpose", "copy_sparse_to_sparse_"), _copied),
    "add": _added,
    "_embedding_bag_backward": _of_bags,
}
"""Entries of results, by the name of an op: functions of the arguments, the sparse ones of them, and the result."""
_COMPRESSED = frozenset(["detach", "alias", "clone", "_to_copy", "t", "transpose"])
"""Ops with rules that hold for compressed rows or columns, too."""
_MIXING = frozenset(["t", "transpose", "add"])
"""Ops that leave entries in another order."""
_ASKED: dict[Any, str] = by_op(
    {
        f"aten.{name}.default": {"indices": "_indices", "values": "_values"}.get(name, name)
        for name in ("_nnz", "_indices", "_values", "is_coalesced", "indices", *_ROWS[:2], *_COLUMNS[:2], "values")
    }
)
"""Ops that ask for a part, with its name."""
