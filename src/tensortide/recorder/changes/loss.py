"""Cross entropy by chunks of rows, in place of that of all logits at once."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tensortide.recorder.changes import ChunkedLoss, NotApplicable
from tensortide.recorder.found import Found
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import pytree

Step = Callable[[], Any]
_linear = F.linear


class Product:
    """The product of ``hidden`` rows and a weight, and where it is used before or beside a loss."""

    def __init__(self, weight: torch.Tensor, chunks: int) -> None:
        self.weight, self.chunks = weight, chunks
        self.applied, self.read_by = 0, ""

    def linear(self, hidden: Any, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
        """``F.linear``, which puts off the product with the weight."""
        if weight is not self.weight:
            return _linear(hidden, weight, bias)
        return _Logits(hidden, bias, self)

    def loss(self, logits: _Logits, target: torch.Tensor, reduction: str, options: dict[str, Any]) -> torch.Tensor:
        """Cross entropy by chunks."""
        self.applied += 1

        def part(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            scores = _linear(rows, self.weight, logits.bias)
            scores = scores if logits.cast is None else scores.to(logits.cast)
            return F.cross_entropy(scores, labels, reduction="sum", **options)

        rows, labels = logits.hidden.flatten(0, -2), target.flatten()
        total: Any = 0
        for some, theirs in zip(rows.chunk(self.chunks), labels.chunk(self.chunks), strict=True):
            total = total + checkpoint(part, some, theirs, use_reentrant=False)
        if reduction == "mean":
            total = total / (labels != options.get("ignore_index", -100)).sum()
        return total  # type: ignore[no-any-return]


def _operator(name: str) -> Callable[..., Any]:
    def run(logits: _Logits, *args: Any) -> Any:
        return getattr(logits.computed(name), name)(*args)

    return run


class _Logits:
    """Logits that are not computed unless something other than a cross entropy reads them; no tensor.

    What only renames or selects rows is done to the ``hidden`` rows. ``swapped``: the classes are dimension 1 of 3, as
    in ``logits.transpose(1, 2)``.
    """

    def __init__(
        self,
        hidden: torch.Tensor,
        bias: torch.Tensor | None,
        product: Product,
        cast: torch.dtype | None = None,
        swapped: bool = False,
    ) -> None:
        self.hidden, self.bias, self.product, self.cast, self.swapped = hidden, bias, product, cast, swapped
        classes, lead = product.weight.shape[0], hidden.shape[:-1]
        self.shape = torch.Size((lead[0], classes, lead[1]) if swapped else (*lead, classes))
        self.dtype, self.device, self.ndim = cast or hidden.dtype, hidden.device, hidden.dim()

    def of(self, hidden: torch.Tensor) -> _Logits:
        """The same of other rows."""
        return _Logits(hidden, self.bias, self.product, self.cast)

    def computed(self, reader: str) -> torch.Tensor:
        """The logits themselves, for ``reader``."""
        self.product.read_by = self.product.read_by or reader
        found = _linear(self.hidden, self.product.weight, self.bias)
        found = found if self.cast is None else found.to(self.cast)
        return found.transpose(1, 2) if self.swapped else found

    def size(self, dim: int | None = None) -> Any:
        """As that of a tensor."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """As that of a tensor."""
        return self.ndim

    def numel(self) -> int:
        """As that of a tensor."""
        return self.shape.numel()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return _ruled("__getitem__", _selected, self, index)

    __add__, __radd__, __sub__, __rsub__, __mul__, __rmul__, __truediv__, __neg__ = map(
        _operator, ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__neg__")
    )

    def __getattr__(self, name: str) -> Any:
        rule = _RULES.get(name)
        return getattr(self.computed(name), name) if rule is None else functools.partial(_ruled, name, rule, self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Chunk the loss, follow functions that rename rows; compute the logits for any other function."""
        del types
        name, kwargs = getattr(func, "__name__", str(func)), kwargs or {}
        rule = {**_RULES, "cross_entropy": _loss}.get(name)
        if rule is not None and isinstance(args[0], _Logits):
            return _ruled(name, rule, *args, func=func, **kwargs)
        given = pytree.tree_map_only(_Logits, lambda logits: logits.computed(name), (args, kwargs))
        return func(*given[0], **given[1])


def _ruled(name: str, rule: Callable[..., Any], logits: _Logits, *args: Any, func: Any = None, **kwargs: Any) -> Any:
    """Return what ``rule`` makes of ``logits``; else what ``func`` or their method ``name`` makes of them once
    computed."""
    found = rule(logits, *args, **kwargs)
    if found is not None:
        return found
    computed = logits.computed(name)
    return getattr(computed, name)(*args, **kwargs) if func is None else func(computed, *args, **kwargs)


def _viewed(logits: _Logits, *shape: Any) -> _Logits | None:
    if logits.swapped or (len(shape) == 1 and isinstance(shape[0], torch.dtype)):
        return None
    sizes = [*(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = logits.numel() // max(1, -math.prod(sizes))
    return logits.of(logits.hidden.reshape(*sizes[:-1], -1)) if sizes[-1] == logits.shape[-1] else None


def _flattened(logits: _Logits, start_dim: int = 0, end_dim: int = -1) -> _Logits | None:
    count = logits.dim()
    start, end = start_dim % count, end_dim % count
    return None if logits.swapped or end == count - 1 else logits.of(logits.hidden.flatten(start, end))


def _selected(logits: _Logits, index: Any) -> _Logits | None:
    parts = [*index] if isinstance(index, tuple) else [index]
    if logits.swapped or not all(part is Ellipsis or isinstance(part, slice | int) for part in parts):
        return None
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (logits.dim() - len(parts) + 1)
    if len(parts) == logits.dim() and parts.pop() != slice(None):
        return None
    return logits.of(logits.hidden[tuple(parts)])


def _swapped(logits: _Logits, *dims: int) -> _Logits | None:
    if logits.swapped or logits.dim() != 3 or sorted(dim % 3 for dim in dims) != [1, 2]:
        return None
    return _Logits(logits.hidden, logits.bias, logits.product, logits.cast, True)


def _permuted(logits: _Logits, *dims: Any) -> _Logits | None:
    given = tuple(dims[0]) if len(dims) == 1 else dims
    return _swapped(logits, 1, 2) if given in ((0, 2, 1), (0, -1, 1), (0, -1, -2)) else None


def _cast(logits: _Logits, dtype: Any = torch.float32, *rest: Any, **options: Any) -> _Logits | None:
    if rest or options or not isinstance(dtype, torch.dtype):
        return None
    return _Logits(logits.hidden, logits.bias, logits.product, dtype, logits.swapped)


def _loss(
    logits: _Logits,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor | None:
    plain = weight is None and size_average is None and reduce is None and reduction in ("mean", "sum")
    if not plain or target.is_floating_point() or target.numel() != logits.hidden.shape[:-1].numel():
        return None
    options: dict[str, Any] = {"ignore_index": ignore_index}
    options |= {"label_smoothing": label_smoothing} if label_smoothing else {}
    return logits.product.loss(logits, target, reduction, options)


_RULES: dict[str, Callable[..., Any]] = {
    "view": _viewed,
    "reshape": _viewed,
    "flatten": _flattened,
    "transpose": _swapped,
    "permute": _permuted,
    "contiguous": lambda logits: logits,
    "float": _cast,
    "to": _cast,
}
"""What is done to the rows in place of the logits, by the name of the method; None where it cannot be."""


@contextlib.contextmanager
def chunked_loss(change: ChunkedLoss, step: Step, found: Found) -> Iterator[Step]:
    """Put off the product with a weight, until a loss takes it by chunks. Raises NotApplicable if none does."""
    named = (each for prefix, root in found.roots().items() for each in root.named_parameters(prefix=prefix))
    weight = next((parameter for name, parameter in named if name == change.weight), None)
    if weight is None:
        raise NotApplicable(f"the step has no parameter {change.weight}")
    product = Product(weight, change.chunks)
    with replaced(F, "linear", product.linear):
        yield functools.partial(_run, step, product)


def _run(step: Step, product: Product) -> Any:
    result = step()
    if not product.applied:
        reader = f"{product.read_by} reads them" if product.read_by else "no F.linear makes them"
        raise NotApplicable(f"the logits do not go straight into F.cross_entropy: {reader}")
    return result
