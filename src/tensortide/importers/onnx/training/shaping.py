"""Backward rules of ops that rename, move, cut and join, and of control flow."""

from __future__ import annotations

from tensortide.graph.handles import Out, contiguous
from tensortide.importers.onnx.training.reverse import Back, Rule


def renamed(back: Back) -> None:
    """A view: the gradient is one too."""
    dy, shape = back.dy, back.input(0).shape
    back.give(0, dy if dy.shape == shape else back.emit("View", dy, out=Out(shape, dy.dtype, dy)))


def copied(back: Back) -> None:
    """A copy in another order, dtype or place: the gradient is copied back."""
    back.give(0, back.emit("Copy", back.dy, out=Out(back.input(0).shape, back.input(0).dtype)))


def spread(back: Back) -> None:
    """A broadcast or a repetition: the gradient is summed."""
    back.give(0, back.emit("SumTo", back.dy, out=back.input(0).shape))


def joined(back: Back) -> None:
    """A concatenation: each part gets its part of the gradient, a view."""
    dy, strides = back.dy, contiguous(back.dy.shape)
    axis = back.attr("axis", 0)
    if not isinstance(axis, int):
        return
    axis, offset = axis % len(dy.shape), 0
    for place in range(len(back.view.op.inputs)):
        shape = back.input(place).shape
        if back.wanted(place):
            back.give(place, back.emit("View", dy, out=Out(shape, dy.dtype, dy, strides, offset)))
        offset += strides[axis] * shape[axis]


def split(back: Back) -> None:
    """Parts: their gradients are joined, zeros for those that have none."""
    count = len(back.view.op.outputs)
    parts = [
        found if (found := back.gradient(i)) is not None
        else back.emit("Zeros", out=Out(back.output(i).shape, back.output(i).dtype))
        for i in range(count)
    ]  # fmt: skip
    whole = Out(back.input(0).shape, back.input(0).dtype)
    back.give(0, back.engine.emit("Join", parts, (whole,), (), {}, back.view.op.label)[0])


def looked_up(back: Back) -> None:
    """A lookup by indices: the gradient is added at them into zeros."""
    indices = back.place("indices")
    back.give(0, back.emit("GatherGrad", back.dy, back.input(indices), out=back.input(0).shape))


def chosen(back: Back) -> None:
    """The largest of every row: the gradient is put at their places."""
    places = [back.output(1)] if len(back.view.op.outputs) > 1 else []
    back.give(0, back.emit("GatherGrad", back.dy, *places, out=back.input(0).shape))


def scattered(back: Back) -> None:
    """Data with some elements replaced: both get their part of the gradient."""
    dy, updates = back.dy, back.place("updates")
    if back.wanted(0):
        back.give(0, back.emit("Copy", dy, out=back.input(0).shape))
    if back.wanted(updates):
        back.give(updates, back.emit("Copy", dy, out=back.input(updates).shape))


def merged(back: Back) -> None:
    """The result of whichever arm runs."""
    for place in range(len(back.view.op.inputs)):
        back.give(place, back.dy)


def sliced(back: Back) -> None:
    """Gradient of the slice of a scanned input that one trip takes: a part of that input's."""
    back.give(0, back.emit("Spread", back.dy, out=back.input(0).shape))


_VIEWS = "Reshape Squeeze Unsqueeze Flatten Identity Dropout Loop.state Scan.state Loop.grown"
_COPIES = "Transpose Cast Slice Pad DepthToSpace SpaceToDepth Trilu CenterCropPad ReverseSequence CumSum"
RULES: dict[str, Rule] = {
    **{f"onnx.{name}": renamed for name in _VIEWS.split()},
    **{f"onnx.{name}": copied for name in _COPIES.split()},
    **{f"onnx.{name}": spread for name in ("Expand", "Tile")},
    **{f"onnx.{name}": looked_up for name in ("Gather", "GatherElements", "GatherND")},
    **{f"onnx.{name}": scattered for name in ("ScatterND", "ScatterElements", "Scatter")},
    **{f"onnx.{name}": sliced for name in ("Scan.slice", "Loop.slice")},
    **{f"onnx.{name}": copied for name in ("Scan.stack", "Loop.stack")},
    "onnx.TopK": chosen,
    "onnx.Concat": joined,
    "onnx.Split": split,
    "onnx.If": merged,
}
