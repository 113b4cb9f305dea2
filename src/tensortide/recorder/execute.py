"""Repeated execution of a recorded op: its function, its arguments with the caller's tensors, and random operands.

Random operands have the recorded dtypes, shapes and strides, and legal values. Floats are
uniform between 0 and 1: probabilities, variances, arguments of logarithms and roots all are. Integers that an op takes
for indices lie within what they index; those of pointwise ops are from 1 to 7, so that they divide; all others are 0,
which is an index of anything.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from tensortide.errors import GraphError
from tensortide.graph.calls import RECORDED
from tensortide.graph.model import Call, Const, OpView, Tensor, count_slots
from tensortide.recorder.torch_dtypes import torch_dtype

_NAMED = ("layout", "memory_format")
Arguments = dict[str, Any]
Shape = tuple[int, ...]
Row = TypeVar("Row")


def function(call: Call) -> Any:
    """The dispatcher op that ``call`` names. Raises GraphError if this PyTorch does not have it."""
    owner: Any = torch.ops
    for part in call.op.split("."):
        owner = getattr(owner, part, None)
        if owner is None:
            raise GraphError(f"this PyTorch ({torch.__version__}) has no op {call.op}")
    return owner


def arguments(op: OpView, make: Callable[[Tensor], torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of ``op``; ``make`` gives the real or fake tensor for each input."""
    values = [(name, _value(value, make)) for name, value in op.arguments.items()]
    cut = op.call.positional
    return [value for _, value in values[:cut]], {k: v for k, v in values[cut:] if not k.endswith(RECORDED)}


def _value(value: Any, make: Callable[[Tensor], torch.Tensor]) -> Any:
    if isinstance(value, Tensor):
        return make(value)
    if isinstance(value, tuple):
        return [_value(item, make) for item in value]
    return _constant(value) if isinstance(value, Const) else value


def _constant(value: Const) -> Any:
    if value.kind == "dtype":
        return torch_dtype(value.value)
    if value.kind in _NAMED:
        return getattr(torch, value.value)
    if value.kind == "device":
        return torch.device(value.value)
    if value.kind == "generator":
        return torch.Generator(value.value)
    if value.kind == "tensor":
        return _embedded(value.value)
    raise GraphError(f"an argument was not recorded and cannot be given again: {value.value}")


def _embedded(text: str) -> torch.Tensor:
    """The small constant tensor written as ``dtype (shape) [values]``."""
    dtype, _, rest = text.partition(" ")
    shape, _, values = rest.partition(") ")
    sizes = ast.literal_eval(shape + ")")
    if values == "...":
        return torch.zeros(sizes, dtype=torch_dtype(dtype.removeprefix("torch.")))
    items = [
        float(item) if item in _NOT_FINITE else ast.literal_eval(item) for item in values[1:-1].split(", ") if item
    ]
    return torch.tensor(items, dtype=torch_dtype(dtype.removeprefix("torch."))).reshape(sizes)


_NOT_FINITE = ("inf", "-inf", "nan")


# -- random operands --------------------------------------------------------------------------------


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
    base, (name, position) = op.name.split(".")[1].removesuffix("_"), place
    dtype, shape = torch_dtype(tensor.dtype), tuple(map(int, tensor.shape))
    result = _blank(op, tensor, dtype, device)
    if (special := _SPECIAL.get((base, name))) is not None:
        return result.copy_(special(shape, op))
    if dtype is torch.bool:
        return result.copy_(_mask(base, shape, op))
    flat = torch.as_strided(result, (_extent(tensor),), (1,)) if result.numel() else result
    if dtype.is_floating_point or dtype.is_complex:
        _uniform(flat)
    elif (limit := _limit(base, name, position, op.arguments)) is not None:
        flat.copy_(torch.randint(max(1, limit), (flat.numel(),)))
    elif "pointwise" in op.call.tags:
        flat.copy_(torch.randint(1, 8, (flat.numel(),)))
    else:
        flat.zero_()
    return result


def _blank(op: OpView, tensor: Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Memory of the tensor's shape and strides, or of its whole storage if the op reads beyond the tensor."""
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

_INDEXED = frozenset({"index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl"})


def _limit(base: str, name: str, position: int, arguments: Arguments) -> int | None:
    """Upper bound of an argument's values, if they are indices of something known."""
    if base in _INDEXED and name == "indices":
        indexed = arguments["self"].shape
        return int(indexed[position]) if position < len(indexed) else None
    rule = _LIMITS.get((base, name))
    return None if rule is None else int(rule(arguments))


def _along(arguments: Arguments) -> int:
    shape = arguments["self"].shape
    return int(shape[arguments["dim"]]) if shape else 1


def _by_op(*rows: tuple[str, str, Row]) -> dict[tuple[str, str], Row]:
    """A table by op and argument, from rows of ops, an argument that they all have, and the value of the row."""
    return {(op, argument): row for ops, argument, row in rows for op in ops.split()}


_LIMITS: dict[tuple[str, str], Callable[[Arguments], int]] = _by_op(
    ("embedding _embedding_bag _embedding_bag_forward_only", "indices", lambda a: a["weight"].shape[0]),
    ("embedding_dense_backward _embedding_bag_dense_backward", "indices", lambda a: a["num_weights"]),
    ("embedding_renorm", "indices", lambda a: a["self"].shape[0]),
    ("take put", "index", lambda a: a["self"].numel),
    ("index_select index_add index_copy index_fill index_reduce", "index", _along),
    ("gather scatter scatter_add scatter_reduce", "index", _along),
    (
        "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward multi_margin_loss",
        "target",
        lambda a: a["self"].shape[:2][-1],
    ),
    (
        "max_pool2d_with_indices_backward adaptive_max_pool2d_backward",
        "indices",
        lambda a: math.prod(a["self"].shape[-2:]),
    ),
    (
        "max_pool3d_with_indices_backward adaptive_max_pool3d_backward",
        "indices",
        lambda a: math.prod(a["self"].shape[-3:]),
    ),
    ("max_unpool2d max_unpool3d", "indices", lambda a: math.prod(a["output_size"])),
    ("_ctc_loss _ctc_loss_backward", "targets", lambda a: a["log_probs"].shape[2]),
)
"""Upper bound of the indices in an argument, by op and argument. A function fails like the op itself if the call lacks
an argument; the op's time is then unknown."""


# -- operands with constraints ------------------------------------------------------------------------


def _mask(base: str, shape: Shape, op: OpView) -> torch.Tensor:
    """Mask that selects as many elements as the op's result has rows, if that is known; else half."""
    arguments: Arguments = op.arguments
    alone = base in ("index", "_unsafe_index") and len(arguments["indices"]) == 1
    known = alone or base in ("nonzero", "masked_select")
    if not (known and op.outputs and op.outputs[0].shape):
        return (torch.rand(math.prod(shape)) < 0.5).reshape(shape)
    flat = torch.zeros(math.prod(shape), dtype=torch.bool)
    flat[torch.randperm(flat.numel())[: int(op.outputs[0].shape[0])]] = True
    return flat.reshape(shape)


def _positive_definite(shape: Shape, op: OpView) -> torch.Tensor:
    del op
    part = torch.rand(shape)
    return part @ part.mT / shape[-1] + torch.eye(shape[-1])


def _bounds(rows: int, parts: int) -> torch.Tensor:
    """Bounds of ``parts`` equal parts of ``rows``: the start of each, and the end of the last."""
    return torch.tensor([rows * i // parts for i in range(parts + 1)])


def _shares(total: int, parts: int) -> torch.Tensor:
    """``parts`` nearly equal counts that add up to ``total``, larger ones first."""
    return torch.tensor([total // parts + (i < total % parts) for i in range(parts)])


def _size(op: OpView, name: str, dim: int) -> int:
    arguments: Arguments = op.arguments
    return int(arguments[name].shape[dim])


_SPECIAL: dict[tuple[str, str], Callable[[Shape, OpView], torch.Tensor]] = _by_op(
    ("linalg_cholesky_ex linalg_cholesky cholesky linalg_solve_triangular", "self", _positive_definite),
    ("linalg_inv_ex _linalg_solve_ex", "A", _positive_definite),
    ("_assert_async", "self", lambda shape, op: torch.ones(shape)),
    ("searchsorted", "sorted_sequence", lambda shape, op: torch.rand(shape).sort(-1).values),
    ("bucketize", "boundaries", lambda shape, op: torch.rand(shape).sort(-1).values),
    ("_grouped_mm", "offs", lambda shape, op: _bounds(_size(op, "self", 0), shape[0])[1:].reshape(shape)),
    (
        "_embedding_bag _embedding_bag_forward_only",
        "offsets",
        lambda shape, op: _bounds(_size(op, "indices", 0), shape[0])[:-1],
    ),
    ("repeat_interleave", "repeats", lambda shape, op: _shares(int(op.outputs[0].shape[0]), shape[0])),
    ("_pad_packed_sequence", "batch_sizes", lambda shape, op: _shares(_size(op, "data", 0), shape[0])),
    ("_pack_padded_sequence", "lengths", lambda shape, op: torch.full(shape, _size(op, "input", 0))),
    ("_ctc_loss _ctc_loss_backward", "input_lengths", lambda shape, op: torch.full(shape, _size(op, "log_probs", 0))),
    ("_ctc_loss _ctc_loss_backward", "target_lengths", lambda shape, op: torch.full(shape, _size(op, "targets", -1))),
)
