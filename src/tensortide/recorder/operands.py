"""Random operands that an op accepts: of the recorded dtypes, shapes and strides, with values that are legal there.

Floats are uniform between 0 and 1: probabilities, variances, arguments of logarithms and roots all are. Integers that
an op takes for indices lie within what they index; those of pointwise ops are from 1 to 7, so that they divide; all
others are 0, which is an index of anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.graph.model import OpView, Tensor, count_slots

__all__ = ["Operands"]

Arguments = dict[str, Any]


class Operands:
    """The tensors of one op. ``make`` hands them out in the order of its inputs."""

    def __init__(self, op: OpView, device: str) -> None:
        made: dict[int, torch.Tensor] = {}
        slots = zip(op.op.inputs, op.inputs, _places(op), strict=True)
        for index, tensor, place in slots:
            if index not in made:
                made[index] = _operand(op, tensor, place, device)
        tensors = [made[index] for index in op.op.inputs]
        self._tensors = iter(tensors)
        written = [tensors[slot] for slot in op.call.mutated]
        self._written = [(t, t.clone(), (t.shape, t.stride(), t.storage_offset())) for t in written]

    def make(self, tensor: Tensor) -> torch.Tensor:
        """The next operand, which stands for ``tensor``."""
        del tensor
        return next(self._tensors)

    def refresh(self) -> None:
        """Give what the op writes in place the values and the view of memory that it had at first."""
        for operand, fresh, view in self._written:
            if operand.shape != fresh.shape:
                operand.as_strided_(*view)
            operand.copy_(fresh)


def _places(op: OpView) -> Iterator[tuple[str, int]]:
    """For every tensor among the arguments the argument's name and, in a list, the position there."""
    for name, value in op.call.arguments:
        items = value if isinstance(value, tuple) else (value,)
        for position, item in enumerate(items):
            for _ in range(count_slots(item)):
                yield name, position


def _operand(op: OpView, tensor: Tensor, place: tuple[str, int], device: str) -> torch.Tensor:
    base, arguments = op.name.split(".")[1].removesuffix("_"), op.arguments
    dtype, shape = getattr(torch, tensor.dtype), tuple(map(int, tensor.shape))
    special = _SPECIAL.get((base, place[0]))
    result = _blank(op, tensor, dtype, device)
    if special is not None:
        return result.copy_(special(shape, arguments, op))
    if dtype is torch.bool:
        return result.copy_(_mask(base, place, shape, arguments, op))
    flat = torch.as_strided(result, (_extent(tensor),), (1,)) if result.numel() else result
    if dtype.is_floating_point or dtype.is_complex:
        _uniform(flat)
    else:
        flat.copy_(_integers(base, place, arguments, op, flat.numel()))
    return result


def _blank(op: OpView, tensor: Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Memory of the shape and strides; where the op looks beyond the tensor, all of its storage."""
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.strides))
    if op.name.startswith("aten.as_strided"):
        nbytes = int(op.graph.storages[tensor.storage].nbytes)
        whole = torch.zeros(nbytes // tensor.itemsize, dtype=dtype, device=device)
        return whole.as_strided(shape, strides, int(tensor.offset))
    if 0 in strides:  # an expanded dimension shares its elements
        return torch.zeros(_extent(tensor), dtype=dtype, device=device).as_strided(shape, strides)
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def _extent(tensor: Tensor) -> int:
    """Elements of memory from the first to the last of ``tensor``."""
    if 0 in tensor.shape:
        return 0
    return 1 + sum((int(n) - 1) * int(stride) for n, stride in zip(tensor.shape, tensor.strides, strict=True))


def _uniform(flat: torch.Tensor) -> None:
    if flat.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat.uniform_(0.0, 1.0)
    else:
        flat.copy_(torch.rand(flat.shape, device=flat.device).to(flat.dtype))


# -- integers ---------------------------------------------------------------------------------------


def _integers(base: str, place: tuple[str, int], arguments: Arguments, op: OpView, count: int) -> torch.Tensor:
    limit = _limit(base, place, arguments)
    if limit is not None:
        return torch.randint(max(1, limit), (count,))
    if "pointwise" in op.call.tags:
        return torch.randint(1, 8, (count,))
    return torch.zeros(count, dtype=torch.int64)


def _limit(base: str, place: tuple[str, int], arguments: Arguments) -> int | None:
    """Upper bound of an argument's values, if they are indices of something known."""
    name, position = place
    if base in _INDEXED and name == "indices":
        indexed = arguments["self"].shape
        return int(indexed[position]) if position < len(indexed) else None
    rule = _LIMITS.get((base, name))
    return None if rule is None else int(rule(arguments))


_INDEXED = frozenset({"index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl"})


def _along(arguments: Arguments) -> int:
    shape = arguments["self"].shape
    return int(shape[arguments["dim"]]) if shape else 1


def _classes(arguments: Arguments) -> int:
    shape = arguments["self"].shape
    return int(shape[1] if len(shape) > 1 else shape[0])


def _area(dims: int) -> Callable[[Arguments], int]:
    return lambda arguments: math.prod(arguments["self"].shape[-dims:])


_LIMITS: dict[tuple[str, str], Callable[[Arguments], int]] = {
    ("embedding", "indices"): lambda a: a["weight"].shape[0],
    ("embedding_dense_backward", "indices"): lambda a: a["num_weights"],
    ("embedding_renorm", "indices"): lambda a: a["self"].shape[0],
    ("_embedding_bag", "indices"): lambda a: a["weight"].shape[0],
    ("_embedding_bag_forward_only", "indices"): lambda a: a["weight"].shape[0],
    ("_embedding_bag_dense_backward", "indices"): lambda a: a["num_weights"],
    ("take", "index"): lambda a: a["self"].numel,
    ("put", "index"): lambda a: a["self"].numel,
    **dict.fromkeys(
        itertools.product(
            (
                *("index_select", "index_add", "index_copy", "index_fill", "index_reduce"),
                *("gather", "scatter", "scatter_add", "scatter_reduce"),
            ),
            ("index",),
        ),
        _along,
    ),
    **dict.fromkeys(
        itertools.product(
            ("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward", "multi_margin_loss"),
            ("target",),
        ),
        _classes,
    ),
    **dict.fromkeys(
        itertools.product(("max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward"), ("indices",)), _area(2)
    ),
    **dict.fromkeys(
        itertools.product(("max_pool3d_with_indices_backward", "adaptive_max_pool3d_backward"), ("indices",)), _area(3)
    ),
    ("max_unpool2d", "indices"): lambda a: math.prod(a["output_size"]),
    ("max_unpool3d", "indices"): lambda a: math.prod(a["output_size"]),
    ("_ctc_loss", "targets"): lambda a: a["log_probs"].shape[2],
    ("_ctc_loss_backward", "targets"): lambda a: a["log_probs"].shape[2],
}
"""Upper bound of the indices in an argument, by op and argument. A function that needs an argument the call does not
have fails like the op itself: the op is unknown then."""


# -- what must hold of the values together ----------------------------------------------------------


def _mask(base: str, place: tuple[str, int], shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    """Mask that chooses as many elements as the op's result has where that is known, else half."""
    flat = torch.rand(math.prod(shape)) < 0.5
    chosen = None
    if base in ("nonzero", "masked_select") and op.outputs:
        chosen = int(op.outputs[0].shape[0])
    elif base in _INDEXED and len(arguments["indices"]) == 1:
        values = op.outputs[0].shape if base.endswith("index") else arguments["values"].shape
        chosen = int(values[0]) if values and base.endswith("index") else None
    if chosen is not None:
        flat = torch.zeros(math.prod(shape), dtype=torch.bool)
        flat[torch.randperm(flat.numel())[:chosen]] = True
    return flat.reshape(shape)


def _positive_definite(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    del arguments, op
    part = torch.rand(shape)
    return part @ part.mT / shape[-1] + torch.eye(shape[-1])


def _all_true(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    del arguments, op
    return torch.ones(shape)


def _ascending(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    del arguments, op
    return torch.rand(shape).sort(-1).values


def _ends(name: str) -> Callable[[tuple[int, ...], Arguments, OpView], torch.Tensor]:
    """Ends of equal parts of the rows of argument ``name``."""

    def make(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
        del op
        rows, parts = int(arguments[name].shape[0]), shape[0]
        return torch.tensor([rows * (i + 1) // parts for i in range(parts)]).reshape(shape)

    return make


def _starts(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    """Starts of bags of equal length."""
    del op
    rows = int(arguments["indices"].shape[0])
    return torch.tensor([rows * i // shape[0] for i in range(shape[0])])


def _shares(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    """Counts that add up to the rows of the result, the larger ones first."""
    del arguments
    total, parts = int(op.outputs[0].shape[0]), shape[0]
    return torch.tensor([total // parts + (i < total % parts) for i in range(parts)])


def _batch_sizes(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
    """Counts that add up to the rows of packed data, the larger ones first."""
    del op
    total, parts = int(arguments["data"].shape[0]), shape[0]
    return torch.tensor([total // parts + (i < total % parts) for i in range(parts)])


def _lengths(name: str, dim: int) -> Callable[[tuple[int, ...], Arguments, OpView], torch.Tensor]:
    """All of the length of argument ``name`` along ``dim``."""

    def make(shape: tuple[int, ...], arguments: Arguments, op: OpView) -> torch.Tensor:
        del op
        return torch.full(shape, int(arguments[name].shape[dim]))

    return make


_SPECIAL: dict[tuple[str, str], Callable[[tuple[int, ...], Arguments, OpView], torch.Tensor]] = {
    ("linalg_cholesky_ex", "self"): _positive_definite,
    ("linalg_cholesky", "self"): _positive_definite,
    ("cholesky", "self"): _positive_definite,
    ("linalg_inv_ex", "A"): _positive_definite,
    ("_linalg_solve_ex", "A"): _positive_definite,
    ("linalg_solve_triangular", "self"): _positive_definite,
    ("_assert_async", "self"): _all_true,
    ("searchsorted", "sorted_sequence"): _ascending,
    ("bucketize", "boundaries"): _ascending,
    ("_grouped_mm", "offs"): _ends("self"),
    ("_embedding_bag", "offsets"): _starts,
    ("_embedding_bag_forward_only", "offsets"): _starts,
    ("repeat_interleave", "repeats"): _shares,
    ("_pack_padded_sequence", "lengths"): _lengths("input", 0),
    ("_pad_packed_sequence", "batch_sizes"): _batch_sizes,
    ("_ctc_loss", "input_lengths"): _lengths("log_probs", 0),
    ("_ctc_loss", "target_lengths"): _lengths("targets", -1),
    ("_ctc_loss_backward", "input_lengths"): _lengths("log_probs", 0),
    ("_ctc_loss_backward", "target_lengths"): _lengths("targets", -1),
}
