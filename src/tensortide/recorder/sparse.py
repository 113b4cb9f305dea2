"""Sparse tensors, which have no storage: what they consist of, and their numbers of entries on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensortide.recorder.torch_compat import DynamicOutputShapeException, FakeTensor, by_op, no_dispatch, pytree

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
    """Return the dense result of ``func``, one of ``DENSE``, if it has a sparse operand; else None.

    PyTorch would compute it from zeros.
    """
    return DENSE[func](*args) if any(_is_sparse(each) for each in args[:2]) else None


def _is_sparse(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.layout in _PARTS


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    """A product with a dense factor is dense."""
    factor = one if other.layout in _PARTS else other
    return None if factor.layout in _PARTS else factor.new_empty((one.shape[0], other.shape[1]))


def _sum(total: torch.Tensor, added: Any, **_: Any) -> torch.Tensor | None:
    return None if total.layout in _PARTS else total


DENSE: dict[Any, Callable[..., Any]] = by_op({"aten.mm.default": _product, "aten.add_.Tensor": _sum})
"""Ops whose result may be dense although an operand is sparse."""


def compressed(given: Sequence[Any], size: Sequence[int], **how: Any) -> Any:
    """Return a tensor of compressed rows or columns, from its parts."""
    mode: Any = next(each.fake_mode for each in given if isinstance(each, FakeTensor))
    device = torch.device(how.get("device") or given[-1].device)
    made = tuple(each.to(device) for each in given)
    make: Any = torch.sparse_compressed_tensor  # its annotations leave out the size
    with no_dispatch():
        shapes = [torch.empty(each.shape, dtype=each.dtype, device="meta") for each in made]
        layout = how.get("layout") or torch.sparse_csr
        outline = make(*shapes, size, layout=layout, check_invariants=False)
    result: Any = FakeTensor(mode, outline, device)
    result.parts, result.in_order = made, False
    return result


def from_dense(name: str) -> Callable[..., Any]:
    """Return what runs in place of the op ``name``, which makes a sparse tensor of a dense one: as many entries as it
    has where its values are known."""

    def make(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        (func,) = by_op({name: None})
        if tensor.constant is None:
            raise DynamicOutputShapeException(func)
        with no_dispatch():
            real = func(tensor.constant, *args, **kwargs)
            entries = parts(real)
        made: Any = [tensor.fake_mode.from_tensor(part).to(tensor.device) for part in entries]
        if real.layout != torch.sparse_coo:
            return compressed(made, real.shape, layout=real.layout)
        result: Any = torch.sparse_coo_tensor(made[0], made[1], real.shape, check_invariants=False)
        result.in_order = True
        return result

    return make


def any_sparse(result: Any) -> bool:
    """Return whether a fake result of an op is sparse, or one of several is."""
    several = result if isinstance(result, (tuple, list)) else (result,)
    return any(isinstance(each, FakeTensor) and each.layout in _PARTS for each in several)


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


def _transposed(args: Sequence[Any], given: Sequence[Any], result: torch.Tensor) -> Parts:
    """Rows are columns of the same parts; entries with two indices are copied."""
    return _copied(args, given, result) if result.layout == torch.sparse_coo else parts(given[0])


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
    **dict.fromkeys(("clone", "_to_copy", "copy_sparse_to_sparse_"), _copied),
    **dict.fromkeys(("t", "transpose"), _transposed),
    "add": _added,
    "_embedding_bag_backward": _of_bags,
}
"""Entries of results, by the name of an op: functions of the arguments, the sparse ones of them, and the result."""
_COMPRESSED = frozenset(["detach", "alias", "clone", "_to_copy", "t", "transpose"])
"""Ops with rules that hold for compressed rows or columns, too."""
_MIXING = frozenset(["t", "transpose", "add"])
"""Ops that leave entries in another order."""
FROM_DENSE = tuple(
    f"aten.{name}"
    for name in (
        "_to_sparse.default",
        "_to_sparse.sparse_dim",
        *(f"_to_sparse_{kind}.default" for kind in ("csr", "csc", "bsr", "bsc")),
    )
)
"""Ops that make a sparse tensor of a dense one."""
_ASKED: dict[Any, str] = by_op(
    {
        f"aten.{name}.default": {"indices": "_indices", "values": "_values"}.get(name, name)
        for name in ("_nnz", "_indices", "_values", "is_coalesced", "indices", *_ROWS[:2], *_COLUMNS[:2], "values")
    }
)
"""Ops that ask for a part, with its name."""
