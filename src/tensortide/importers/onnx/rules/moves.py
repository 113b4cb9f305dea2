"""ONNX ops that move bytes or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensortide.cost.access import Bytes, nothing, selected_rows, size, writes_only
from tensortide.cost.kinds import Kind, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.pointwise import ARITHMETIC

W = TypeVar("W", bound=Callable[[OpCall], Cost | None])


def onnx(names: str, formula: str, meaning: str = "", **options: Any) -> Callable[[W], W]:
    """Register the decorated function as the rule of op types, separated by spaces. A ``*`` before one: it is an op of
    onnxruntime (``com.microsoft``) too; ``+``: of that alone."""
    keys = []
    for name in names.split():
        bare = name.lstrip("*+")
        keys += [f"onnx::{bare}"] * (name[0] != "+") + [f"com::microsoft::{bare}"] * (name[0] in "*+")
    return rule(*keys, formula=formula, meaning=meaning, **options)


@onnx(
    "Reshape Squeeze Unsqueeze Flatten Identity Shape Size Dropout Constant If Loop Scan SequenceConstruct "
    "SequenceEmpty SequenceInsert SequenceErase SequenceAt SequenceLength Optional "
    "OptionalGetElement OptionalHasElement",
    "0: no bytes move", bytes=nothing, is_free=True,
)  # fmt: skip
def free(op: OpCall) -> Cost:
    """A renaming, control flow, a question about a shape, or in inference a dropout that keeps all."""
    del op
    return FREE


@onnx(
    "Transpose Concat Split SplitToSequence ConcatFromSequence Expand Tile Cast CastLike BitCast DepthToSpace "
    "SpaceToDepth ReverseSequence CenterCropPad *Trilu Compress Loop.stack Scan.stack Loop.grown StringConcat "
    "StringNormalizer StringSplit RegexFullMatch ImageDecoder TensorScatter",
    "0 FLOP: read and written", "A copy, in another order, layout or dtype.",
    bytes=lambda op: Bytes(size(op.inputs), size(op.outputs)),
)  # fmt: skip
@onnx(
    "Slice", "0 FLOP: what is taken is read and written", "A copy of a part.",
    bytes=lambda op: Bytes(size(op.outputs), size(op.outputs)),
)  # fmt: skip
@onnx(
    "Pad MaxUnpool", "0 FLOP: zeros with the input copied into place", "A tensor in a larger one.",
    bytes=lambda op: Bytes(size(op.inputs[:1]), size(op.outputs)),
)  # fmt: skip
@onnx("ConstantOfShape EyeLike", "0 FLOP: written", "A fill.", bytes=writes_only)
@onnx(
    "OneHot", "0 FLOP: indices read, all written", "Zeros with a one for every index.",
    bytes=lambda op: Bytes(size(op.inputs[:1]), size(op.outputs)),
)  # fmt: skip
@onnx(
    "Gather GatherElements GatherND", "0 FLOP: indices and the selected elements",
    "Elements by their indices.", bytes=selected_rows("indices"),
)  # fmt: skip
def moved(op: OpCall) -> Cost:
    """Nothing is computed: bytes move."""
    del op
    return Cost()


@onnx("Scatter ScatterElements ScatterND", "0 FLOP, with a reduction 1 per element of the updates")
def scattered(op: OpCall) -> Cost:
    """A copy of the data with elements replaced, or combined with the updates."""
    if op.arg("reduction", "none") == "none":
        return Cost()
    return elements(op, op.tensor("updates").numel, ARITHMETIC)


@onnx("*Range", "1 integer op (2 FLOP if floating) per element", bytes=writes_only)
def numbered(op: OpCall) -> Cost:
    """Start plus index times step."""
    if kind_of(op.outputs) is Kind.INTEGER:
        return Cost(int_ops=op.out.numel)
    return Cost(elementwise_flops=2 * op.out.numel)


@onnx("RandomNormal RandomUniform RandomNormalLike RandomUniformLike", "E random draws, written", bytes=writes_only)
@onnx("Bernoulli", "E random draws and comparisons", "One draw per element, compared with its probability.")
def drawn(op: OpCall) -> Cost:
    """One draw per element."""
    compared = op.out.numel if op.base == "Bernoulli" else 0
    return Cost(random_draws=op.out.numel, elementwise_flops=compared, comparisons=compared)


@onnx("Multinomial", "2 n per row; per sample one random draw and log2 n comparisons")
def multinomial(op: OpCall) -> Cost:
    """Samples from rows of weights: normalized running sums, searched."""
    count, samples = op.inputs[0].numel, op.out.numel
    searched = samples * int(op.inputs[0].shape[-1]).bit_length()
    return Cost(elementwise_flops=2 * count + searched, comparisons=searched, random_draws=samples)


@onnx("NonZero Unique", "1 per element; the size of the result depends on data")
def selected(op: OpCall) -> Cost:
    """Elements that are not zero, or distinct ones."""
    work = elements(op, op.inputs[0].numel, ARITHMETIC, kind_of(op.inputs))
    return work + Cost(exact=False, reason="bound: as if every element were selected")
