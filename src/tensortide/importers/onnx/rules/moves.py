"""ONNX ops that move bytes or nothing at all."""

from __future__ import annotations

from tensortide.cost.access import interface, reads
from tensortide.cost.families import (
    fill,
    free,
    gather,
    move,
    numbered,
    part,
    placed,
    random,
    sampled,
    scatter,
    selected,
)
from tensortide.cost.registry import Vocabulary

onnx = Vocabulary("onnx", also="com::microsoft")
"""Op types; those of onnxruntime, ``com.microsoft``, are marked with a ``*`` or ``+``."""

onnx.rows({
    "Reshape Squeeze Unsqueeze Flatten Identity Shape Size Dropout Constant If Loop Scan SequenceConstruct "
    "SequenceEmpty SequenceInsert SequenceErase SequenceAt SequenceLength Optional OptionalGetElement "
    "OptionalHasElement": free(),
    "Transpose Concat Split SplitToSequence ConcatFromSequence Expand Tile Cast BitCast DepthToSpace "
    "SpaceToDepth ReverseSequence CenterCropPad *Trilu Compress Loop.stack Scan.stack Loop.grown StringConcat "
    "StringNormalizer StringSplit RegexFullMatch ImageDecoder TensorScatter": move(),
    "CastLike": move(bytes=reads("input")),
    "Slice": part(),
    "Pad MaxUnpool": placed(),
    "OneHot": placed(meaning="Zeros with a one for every index."),
    "ConstantOfShape EyeLike": fill(),
    "Gather GatherElements GatherND": gather(),
    "Scatter ScatterElements ScatterND": scatter("arithmetic", unless="reduction"),
    "*Range": numbered(),
    "RandomNormal RandomUniform RandomNormalLike RandomUniformLike": random(),
    "Bernoulli": random(compared=True, bytes=interface),
    "Multinomial": sampled(),
    "NonZero Unique": selected(),
})  # fmt: skip
