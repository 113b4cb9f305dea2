"""The rules by which ops go backward, and among them those of ops that rename, move, cut, join, and of control flow."""

from __future__ import annotations

from tensortide.graph.handles import Out, contiguous
from tensortide.importers.onnx.training import elements, products
from tensortide.importers.onnx.training.reverse import Back, Rule, each, moved


def renamed(back: Back) -> None:
    """A view: the gradient is one too."""
    dy, shape = back.dy, back.input(0).shape
    back.give(0, dy if dy.shape == shape else back.emit("View", dy, out=Out(shape, dy.dtype, dy)))


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


_VIEWS = "Reshape Squeeze Unsqueeze Flatten Identity Dropout Loop.state Scan.state Loop.grown"
_COPIES = "Transpose Cast Slice Pad DepthToSpace SpaceToDepth Trilu CenterCropPad ReverseSequence CumSum"
RULES: dict[str, Rule] = {
    **{f"onnx.{name}": renamed for name in _VIEWS.split()},
    **{f"onnx.{name}": moved("Copy") for name in _COPIES.split()},
    **{f"onnx.{name}": moved("SumTo") for name in ("Expand", "Tile")},
    **{f"onnx.{name}": moved("GatherGrad 1") for name in ("Gather", "GatherElements", "GatherND")},
    **{f"onnx.{name}": moved("Copy", "", "Copy") for name in ("ScatterND", "ScatterElements", "Scatter")},
    **{f"onnx.{name}": moved("Spread") for name in ("Scan.slice", "Loop.slice")},
    **{f"onnx.{name}": moved("Copy") for name in ("Scan.stack", "Loop.stack")},
    "onnx.TopK": moved("GatherGrad y1"),
    "onnx.Concat": joined,
    "onnx.Split": split,
    "onnx.If": each(""),
}


# --- the table -----------------------------------------------------------------------------------------

BACKWARD: dict[str, Rule] = {**elements.RULES, **RULES, **products.RULES}
"""Rules by op name. Ops whose results have no gradient (``replay.STOPS``) have none."""
