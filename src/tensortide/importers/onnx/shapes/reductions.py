"""Shapes of reductions, normalization, losses, selections, sequences."""

from __future__ import annotations

from tensortide.importers.onnx.contents import BINARY, array, mapped, scalar
from tensortide.importers.onnx.shapes.base import Call, shape
from tensortide.importers.onnx.value import Spec, Value
from tensortide.importers.shapes import PLAIN, ShapeError, concatenated, inserted, reduced, replaced


def reduction(call: Call) -> Spec:
    """Reduced over axes, which stay as 1 unless told otherwise."""
    x, axes = call.x(), call.integers(1, "axes")
    if not axes and call.attr("noop_with_empty_axes", 0):
        return call.like()
    places = {call.axis(axis, x.rank) for axis in axes or range(x.rank)}
    dims = reduced(x.shape, places, *(1,) * bool(call.attr("keepdims", 1)))
    return call.like(dims, contents=_folded(call, x, dims) if len(places) == x.rank else None)


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
def place(call: Call) -> Spec:
    """The place of an extremum along an axis."""
    x = call.x()
    return Spec(reduced(x.shape, {call.axis_attr(x.rank, 0)}, *(1,) * bool(call.attr("keepdims", 1))), "int64")


@shape("TopK")
def top_k(call: Call) -> list[Spec]:
    """The largest along an axis, and their places."""
    x = call.ranked(0, 1)
    axis = call.axis_attr(x.rank)
    k = call.size(1, "k", x.shape[axis]) if call.version >= 10 else call.attr("k", 1)
    if int(k) > int(x.shape[axis]) or int(k) < 0:
        raise ShapeError(f"the {int(k)} largest of {int(x.shape[axis])}")
    dims = replaced(x.shape, axis, k)
    return [call.like(dims), Spec(dims, "int64")]


@shape("BatchNormalization")
def batch_norm(call: Call) -> list[Spec]:
    """Normalized by channel; in training also the statistics."""
    call.ranked(0, 1)
    return [call.like(), *(call.like(index=3 + i % 2) for i in range(len(call.node.outputs) - 1))]


@shape("LayerNormalization")
def layer_norm(call: Call) -> list[Spec]:
    """Normalized over the last dimensions, and the statistics."""
    x = call.ranked(0, 1)
    axis = call.axis_attr(x.rank)
    return [call.like(), *[Spec(reduced(x.shape, range(axis, x.rank), 1), "float32")] * 2]


@shape("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss")
def loss(call: Call) -> list[Spec]:
    """A loss, and the logarithms of probabilities."""
    call.ranked(0, 2)
    labels = call.x(1)
    return [call.like(labels.shape if call.attr("reduction", "mean") == "none" else ()), call.like()]


# --- sequences -----------------------------------------------------------------------------------------


def _items(call: Call, least: int = 0) -> tuple[Value, ...]:
    value = call.given(0)
    if value is None or value.items is None:
        raise ShapeError("its first input is no sequence")
    if len(value.items) < least:
        raise ShapeError("an empty sequence")
    return value.items


def _at(call: Call, index: int, most: int) -> int:
    """Return a place in a sequence; the last where it depends on data, or is not given."""
    found = call.content(index)
    at = most - 1 if not found or not isinstance(found[0], int) else int(found[0])
    if not -most <= at < max(most, 1):
        raise ShapeError(f"item {at} of {most}")
    return at % most if most else 0


@shape("SequenceAt")
def item(call: Call) -> Spec:
    """One item."""
    items = _items(call, 1)
    found = items[_at(call, 1, len(items))]
    return Spec(found.shape, found.dtype, found.contents)


@shape("SequenceInsert")
def added(call: Call) -> Spec:
    """One more item."""
    items = _items(call)
    at = _at(call, 2, len(items) + 1)
    return Spec(items=(*items[:at], call.x(1), *items[at:]))


@shape("SequenceErase")
def erased(call: Call) -> Spec:
    """One item less."""
    items = _items(call, 1)
    at = _at(call, 1, len(items))
    return Spec(items=items[:at] + items[at + 1 :])


@shape("ConcatFromSequence")
def joined(call: Call) -> Spec:
    """All items along an axis, an old or a new one."""
    items = _items(call, 1)
    first, new = items[0], call.attr("new_axis", 0)
    axis = call.axis_attr(first.rank + new, 0)
    if new:
        return Spec(inserted(first.shape, axis, len(items)), first.dtype)
    return Spec(concatenated(PLAIN, [value.shape for value in items], axis), first.dtype)


MOST_ITEMS = 4096
"""Most items that a sequence is followed with."""


@shape("SplitToSequence")
def parts(call: Call) -> Spec:
    """Parts along an axis."""
    x = call.ranked(0, 1)
    axis = call.axis_attr(x.rank, 0)
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
        raise ShapeError(f"a sequence of more than {MOST_ITEMS} items")
    return Spec(items=tuple(Value(replaced(x.shape, axis, *(n,) * bool(keep)), x.dtype) for n in sizes))


@shape("Optional")
def optional(call: Call) -> Spec:
    """Something, or nothing."""
    value = call.given(0)
    return Spec(items=() if value is None else (value,))


@shape("OptionalGetElement")
def element(call: Call) -> Spec:
    """The tensor that an optional holds."""
    value = call.given(0)
    if value is not None and value.items is None:
        return Spec(value.shape, value.dtype, value.contents, view_of=0)
    if value is None or len(value.items or ()) != 1:
        raise ShapeError("it takes what an empty optional holds")
    (found,) = value.items or ()
    return Spec(items=found.items) if found.items is not None else Spec(found.shape, found.dtype, found.contents)


shape("SequenceConstruct")(lambda call: Spec(items=tuple(call.x(i) for i in range(len(call.inputs)))))
shape("SequenceEmpty")(lambda call: Spec(items=()))
shape("SequenceLength")(lambda call: Spec((), "int64", scalar(len(_items(call)))))
shape("OptionalHasElement")(
    lambda call: Spec((), "bool", scalar((value := call.given(0)) is not None and value.items != ()))
)
