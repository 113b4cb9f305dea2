"""Backward rules of element work, reductions, softmax, normalization, pooling and losses."""

from __future__ import annotations

import math
from typing import Any

from tensortide.graph.handles import Handle, Out
from tensortide.importers.onnx.rules.derived import GRADIENTS
from tensortide.importers.onnx.training.reverse import Back, Rule, each, parts

SAVED = {name: gradient.saved for names, gradient in GRADIENTS.items() for name in names.split()}


def averaged(back: Back) -> None:
    """A mean of several tensors."""
    scaled = back.emit("Scale", back.dy, out=back.dy.shape)
    for place in range(len(back.view.op.inputs)):
        back.give(place, scaled)


def reduced(back: Back) -> None:
    """A sum or mean of rows: the gradient is spread over them."""
    dy = back.dy
    if back.kind in ("ReduceMean", "GlobalAveragePool"):
        dy = back.emit("Scale", dy, out=dy.shape)
    elif back.kind != "ReduceSum":
        made = "SelectGrad" if back.kind in ("ReduceMax", "ReduceMin", "GlobalMaxPool") else "MulGrad"
        back.give(0, back.emit(made, dy, back.input(0), back.output(), out=back.input(0).shape))
        return
    back.give(0, back.emit("Spread", dy, out=back.input(0).shape))


def softmax(back: Back) -> None:
    """Softmax, of its result."""
    axis = back.attr("axis", -1)
    back.give(0, back.emit(f"{back.kind}Grad", back.dy, back.output(), out=back.dy.shape, axis=axis))


def normalized(back: Back) -> None:
    """A normalization: gradients of input, scale and bias, as wanted."""
    x = back.input(0)
    scale, bias = _affine(back)
    wanted = (back.wanted(0), back.wanted(scale), back.wanted(bias))
    places = [place for place, flag in zip((0, scale, bias), wanted, strict=True) if flag]
    outs = [Out(back.input(place).shape, back.input(place).dtype) for place in places]
    held = [back.input(scale)] if scale > 0 else []
    affine = math.prod(held[0].shape) if held else 1
    saved = back.saved("mean", "inverse_std")
    kind = {"BatchNormalization": "BatchNormGrad"}.get(back.kind, "RMSNormGrad" if "RMS" in back.kind else "NormGrad")
    if "Simplified" in back.kind:
        kind = "RMSNormGrad"
    made = back.emit_all(
        kind, back.dy, x, *held, *saved, outs=outs, wanted=wanted, affine=affine, scaled=int(bool(held))
    )
    for place, handle in zip(places, made, strict=True):
        back.give(place, handle)
    if "Skip" in back.kind and (skip := back.place("skip")) > 0 and 0 in places:
        back.give(skip, made[0])


def _affine(back: Back) -> tuple[int, int]:
    """Return the places of scale and bias; -1 for none."""
    scale = max(back.place(name) for name in ("Scale", "scale", "gamma"))
    return scale, max(back.place(name) for name in ("B", "bias", "beta"))


def pooled(back: Back) -> None:
    """Pooling: the gradient goes to the largest, or to the whole window."""
    x = back.input(0)
    held = [x, *(back.saved("places") or [back.output(1)])] if back.kind == "MaxPool" else []
    held = held[1:] if back.kind == "MaxPool" else held
    kernel: Any = back.attr("kernel_shape", ())
    back.give(0, back.emit(f"{back.kind}Grad", back.dy, *held, out=x.shape, kernel_shape=kernel))


def resized(back: Back) -> None:
    """Interpolation."""
    back.give(0, back.emit("ResizeGrad", back.dy, out=back.input(0).shape, mode=back.attr("mode", "nearest")))


def loss(back: Back) -> None:
    """A cross entropy: of the probabilities and the labels."""
    x = back.input(0)
    log_prob = [back.output(1)] if len(back.view.op.outputs) > 1 else []
    back.give(0, back.emit("LossGrad", back.dy, *(log_prob or [x]), back.input(1), out=x.shape))


def biased_activation(back: Back) -> None:
    """An activation of a sum with a bias."""
    kind = "GeluGrad" if back.kind == "BiasGelu" else f"{back.kind}Grad"
    dx: Handle = back.emit(kind, back.dy, *(back.input(i) for i in range(len(back.names))), out=back.dy.shape)
    back.give(0, dx)
    back.give(1, dx)


def _pointwise(name: str) -> Rule:
    """A function of each element: of its input or its output, as saved."""
    return parts(f"{name}Grad {SAVED[name].replace('x', '0')}")


_REDUCES = (
    "ReduceSum ReduceMean GlobalAveragePool ReduceMax ReduceMin GlobalMaxPool ReduceL1 ReduceL2 ReduceSumSquare "
    "ReduceLogSumExp ReduceLogSum ReduceProd"
)
_NORMS = "LayerNormalization BatchNormalization InstanceNormalization GroupNormalization RMSNormalization"
RULES: dict[str, Rule] = {
    **{f"onnx.{name}": _pointwise(name) for name in SAVED if name not in ("FastGelu", "QuickGelu")},
    **dict.fromkeys(("onnx.Add", "onnx.Sum"), each("")),
    **dict.fromkeys(("onnx.Min", "onnx.Max"), each("SelectGrad y")),
    **{f"onnx.{name}": reduced for name in _REDUCES.split()},
    **{f"onnx.{name}": normalized for name in _NORMS.split()},
    **{f"onnx.{name}": softmax for name in ("Softmax", "LogSoftmax")},
    **{f"onnx.{name}": pooled for name in ("MaxPool", "AveragePool")},
    **{f"onnx.{name}": resized for name in ("Resize", "Upsample")},
    **{f"onnx.{name}": loss for name in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")},
    "onnx.Where": each("SelectGrad 0"),
    "onnx.Sub": parts("", "NegGradient"),
    "onnx.Mul": parts("MulGrad 1", "MulGrad 0"),
    "onnx.Div": parts("DivGradA 1", "DivGradB 0 1"),
    "onnx.Mean": averaged,
    "onnx.SimplifiedLayerNormalization": normalized,
    **{
        f"com.microsoft::{name}": normalized
        for name in ("SkipLayerNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
    },
    **{f"com.microsoft::{name}": _pointwise(name) for name in ("Gelu", "QuickGelu")},
    **{f"com.microsoft::{name}": biased_activation for name in ("BiasGelu", "FastGelu")},
}
