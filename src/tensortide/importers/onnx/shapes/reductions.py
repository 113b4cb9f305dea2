"""Shapes of reductions, normalization, losses, selections, sequences."""

from __future__ import annotations

from tensortide.importers.onnx.contents import BINARY, array, mapped, scalar
from tensortide.importers.onnx.shapes.base import Call, count, like, shape
from tensortide.importers.onnx.value import OnnxError, Spec, Value

REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)


@shape(REDUCTIONS)
def reduced(call: Call) -> list[Spec]:
    """Reduced over axes, which stay as 1 unless told otherwise."""
    x, axes = call.x(), call.integers(1, "axes")
    if not axes:
        if call.attr("noop_with_empty_axes", 0):
            return [like(x)]
        axes = tuple(range(x.rank))
    places = {call.axis(axis, x.rank) for axis in axes}
    keep = call.attr("keepdims", 1)
    dims = tuple(1 if i in places else n for i, n in enumerate(x.shape) if keep or i not in places)
    return [like(x, shape=dims, contents=_folded(call, x, dims) if len(places) == x.rank else None)]


_FOLDS = {"ReduceProd": "Mul", "ReduceSum": "Add", "ReduceMax": "Max", "ReduceMin": "Min"}


def _folded(call: Call, x: Value, dims: tuple[int, ...]) -> object:
    """Contents of a reduction of everything: products of sizes."""
    if call.node.type not in _FOLDS or x.contents is None or not x.contents.size:
        return None
    total = None
    for element in x.contents.flat:
        found = scalar(element)
        total = found if total is None else mapped(BINARY[_FOLDS[call.node.type]], total, found)
    return None if total is None else array(total.flat, dims)


@shape("ArgMax ArgMin")
def place(call: Call) -> list[Spec]:
    """The place of an extremum along an axis."""
    x = call.x()
    axis, keep = call.axis(call.attr("axis", 0), x.rank), call.attr("keepdims", 1)
    dims = tuple(1 if i == axis else n for i, n in enumerate(x.shape) if keep or i != axis)
    return [Spec(dims, "int64")]


@shape("TopK")
def top_k(call: Call) -> list[Spec]:
    """The largest along an axis, and their places."""
    x = call.ranked(0, 1)
    axis = call.axis(call.attr("axis", -1), x.rank)
    given = call.content(1) if call.version >= 10 else [call.attr("k", 1)]
    k = given[0] if given and given[0] is not None else call.symbol("k", x.shape[axis])
    if int(k) > int(x.shape[axis]) or int(k) < 0:
        raise call.fail(f"the {int(k)} largest of {int(x.shape[axis])}")
    dims = tuple(k if i == axis else n for i, n in enumerate(x.shape))
    return [like(x, shape=dims), Spec(dims, "int64")]


@shape("BatchNormalization")
def batch_norm(call: Call) -> list[Spec]:
    """Normalized by channel; in training also the statistics."""
    x = call.ranked(0, 1)
    return [like(x)] + [like(call.x(3 + i % 2)) for i in range(len(call.node.outputs) - 1)]


@shape("InstanceNormalization GroupNormalization RMSNormalization")
def normalized(call: Call) -> list[Spec]:
    """Like the input."""
    return [like(call.x())]


@shape("LayerNormalization")
def layer_norm(call: Call) -> list[Spec]:
    """Normalized over the last dimensions, and the statistics."""
    x = call.ranked(0, 1)
    axis = call.axis(call.attr("axis", -1), x.rank)
    dims = (*x.shape[:axis], *(1,) * (x.rank - axis))
    return [like(x), Spec(dims, "float32"), Spec(dims, "float32")]


@shape("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss")
def loss(call: Call) -> list[Spec]:
    """A loss, and the logarithms of probabilities."""
    x, labels = call.ranked(0, 2), call.x(1)
    dims = labels.shape if call.attr("reduction", "mean") == "none" else ()
    return [like(x, shape=dims), like(x)]


@shape("SequenceConstruct")
def sequence(call: Call) -> list[Spec]:
    """A list of tensors."""
    return [Spec(items=tuple(call.x(i) for i in range(len(call.inputs))))]


@shape("SequenceEmpty")
def no_items(call: Call) -> list[Spec]:
    """A list of none."""
    return [Spec(items=())]


def _items(call: Call) -> tuple[Value, ...]:
    value = call.given(0)
    if value is None or value.items is None:
        raise call.fail("its first input is no sequence")
    return value.items


def _at(call: Call, index: int, most: int) -> int:
    """Return a place in a sequence; the last where it depends on data."""
    found = call.content(index)
    at = most - 1 if not found or not isinstance(found[0], int) else int(found[0])
    if not -most <= at < max(most, 1):
        raise call.fail(f"item {at} of {most}")
    return at % most if most else 0


@shape("SequenceAt")
def item(call: Call) -> list[Spec]:
    """One item."""
    items = _items(call)
    if not items:
        raise call.fail("an item of an empty sequence")
    found = items[_at(call, 1, len(items))]
    return [Spec(found.shape, found.dtype, found.contents)]


@shape("SequenceInsert")
def inserted(call: Call) -> list[Spec]:
    """One more item."""
    items = _items(call)
    at = len(items) if call.given(2) is None else _at(call, 2, len(items) + 1)
    return [Spec(items=(*items[:at], call.x(1), *items[at:]))]


@shape("SequenceErase")
def erased(call: Call) -> list[Spec]:
    """One item less."""
    items = _items(call)
    if not items:
        raise call.fail("an item of an empty sequence")
    at = len(items) - 1 if call.given(1) is None else _at(call, 1, len(items))
    return [Spec(items=items[:at] + items[at + 1 :])]


@shape("SequenceLength")
def length(call: Call) -> list[Spec]:
    """The number of items."""
    return [Spec((), "int64", scalar(len(_items(call))))]


@shape("ConcatFromSequence")
def joined(call: Call) -> list[Spec]:
    """All items along an axis, an old or a new one."""
    items = _items(call)
    if not items:
        raise call.fail("an empty sequence")
    first, new = items[0], call.attr("new_axis", 0)
    axis = call.axis(call.attr("axis", 0), first.rank + new)
    if new:
        return [like(first, shape=(*first.shape[:axis], len(items), *first.shape[axis:]))]
    total = sum(value.shape[axis] for value in items)
    return [like(first, shape=(*first.shape[:axis], total, *first.shape[axis + 1 :]))]


MOST_ITEMS = 4096
"""Most items that a sequence is followed with."""


@shape("SplitToSequence")
def parts(call: Call) -> list[Spec]:
    """Parts along an axis."""
    x = call.ranked(0, 1)
    axis = call.axis(call.attr("axis", 0), x.rank)
    total, given = x.shape[axis], call.content(1)
    keep = call.attr("keepdims", 1) or call.given(1) is not None
    if given is None:
        sizes: list[int] = [1] * min(int(total), MOST_ITEMS + 1)
    elif call.x(1).rank:
        sizes = list(given)
    else:
        each = max(1, int(given[0]))
        sizes = [each] * min(int(total) // each, MOST_ITEMS + 1)
        sizes += [int(total) % each] * bool(int(total) % each)
    if len(sizes) > MOST_ITEMS or any(n is None for n in sizes):
        raise call.fail(f"a sequence of more than {MOST_ITEMS} items")
    made = []
    for n in sizes:
        dims = (*x.shape[:axis], *((n,) if keep else ()), *x.shape[axis + 1 :])
        made.append(Value(dims, x.dtype))
    return [Spec(items=tuple(made))]


@shape("Optional")
def optional(call: Call) -> list[Spec]:
    """Something, or nothing."""
    value = call.given(0)
    return [Spec(items=() if value is None else (value,))]


@shape("OptionalGetElement")
def element(call: Call) -> list[Spec]:
    """The tensor that an optional holds."""
    value = call.given(0)
    if value is not None and value.items is None:
        return [Spec(value.shape, value.dtype, value.contents, view_of=0)]
    if value is None or len(value.items or ()) != 1:
        raise OnnxError(str(call.fail("it takes what an empty optional holds")))
    (found,) = value.items or ()
    return [Spec(items=found.items)] if found.items is not None else [Spec(found.shape, found.dtype, found.contents)]


@shape("OptionalHasElement")
def present(call: Call) -> list[Spec]:
    """True if there is something."""
    value = call.given(0)
    return [Spec((), "bool", scalar(value is not None and value.items != ()))]


def total(x: Value) -> int:
    """Number of elements."""
    return count(x.shape)
