"""Results of ops that slide a window or take steps: their sizes follow from the input's by the meaning of the op."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tensortide.expr import Expr, ceil_ratio, constant, floor_ratio

Sizes = Sequence[Expr | None]


def window_sizes(shapes: Sequence[Sizes], integers: Mapping[str, Sizes], *, transposed: bool) -> Iterator[Expr]:
    """Sizes that a result may have, by the shapes of an op's inputs and the integers among its arguments.

    A convolution has the kernel in the shape of its weight, a pooling as an argument; without a stride, windows touch.
    """
    if not shapes:
        return
    if "step" in integers:
        yield from _steps(shapes[0], integers)
    kernel = integers.get("kernel_size") or (shapes[1][2:] if "padding" in integers and len(shapes) > 1 else ())
    if not kernel or len(shapes[0]) < len(kernel):
        return
    stride, zeros = integers.get("stride") or kernel, [constant(0)]
    options = [integers.get(name) or default for name, default in (("padding", zeros), ("dilation", [constant(1)]))]
    columns = [_as_many(option, len(kernel)) for option in (*options, stride, integers.get("output_padding") or zeros)]
    found: list[Expr] = []
    for size, width, padding, dilation, step, extra in zip(shapes[0][-len(kernel) :], kernel, *columns, strict=True):
        if size is None or width is None or padding is None or dilation is None or step is None or extra is None:
            return
        reach = dilation * (width - 1) + 1
        inside = size + 2 * padding - reach
        found.append((size - 1) * step - 2 * padding + reach + extra if transposed else floor_ratio(inside, step) + 1)
        yield found[-1]
        if not transposed:
            yield ceil_ratio(inside, step) + 1
    yield math.prod(found, start=constant(1))


def _as_many(sizes: Sizes, count: int) -> Sizes:
    return list(itertools.islice(itertools.cycle(sizes), count)) if len(sizes) < count else sizes[-count:]


def _steps(shape: Sizes, integers: Mapping[str, Sizes]) -> Iterator[Expr]:
    """Sizes after slices with a step, and numbers of windows of one size."""
    (step,) = integers["step"]
    first, width = ((integers.get(name) or [constant(0)])[0] for name in ("start", "size"))
    for size in shape:
        if size is not None and step is not None and first is not None and width is not None:
            yield floor_ratio(size - width, step) + 1 if "size" in integers else ceil_ratio(size - first, step)
