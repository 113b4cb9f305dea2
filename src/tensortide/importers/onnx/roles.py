"""The roles of stored tensors: parameters that training changes, and the constants that are none."""

from __future__ import annotations

import math
from collections import defaultdict

from tensortide.dtypes import is_float
from tensortide.graph.model import Role
from tensortide.importers.onnx.read import Body, Model, Stored

QUANTIZED = {
    "DequantizeLinear": (0,), "ConvInteger": (0, 1), "MatMulInteger": (0, 1), "QLinearConv": (3, 8),
    "QLinearMatMul": (0, 3), "MatMulNBits": (1,), "QGemm": (0, 3, 6), "MatMulIntegerToFloat": (0, 1),
    "DynamicQuantizeMatMul": (1,), "DynamicQuantizeLSTM": (1, 2), "QAttention": (1,),
}  # fmt: skip
"""Inputs of quantized ops that are weights, by op type."""

FIXED = {
    "BatchNormalization": (3, 4), "Clip": (1, 2), "Pad": (2,), "Where": (0, 1, 2), "QuantizeLinear": (0, 1, 2),
    "DequantizeLinear": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,), "Pow": (1,), "Expand": (0,), "Range": (0, 1, 2),
    "RotaryEmbedding": (1, 2, 3), "Attention": (3,), "OneHot": (0, 1, 2), "Equal": (0, 1), "Less": (0, 1),
    "Greater": (0, 1), "Dropout": (1, 2), "Cast": (), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "MatMulNBits": (2, 3), "Trilu": (0, 1), "SoftmaxCrossEntropyLoss": (2,),
    "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5),
    "NegativeLogLikelihoodLoss": (2,), "STFT": (2,), "ScatterND": (0, 1, 2), "MatMulIntegerToFloat": (2, 3, 4, 5),
    "DynamicQuantizeMatMul": (2, 3), "QGemm": (1, 2, 4, 5, 7, 8), "NonMaxSuppression": (2, 3, 4),
}  # fmt: skip
"""Inputs that training does not change, by op type: statistics, bounds, scales, masks, initial states."""


def uses(model: Model) -> dict[str, set[tuple[str, int]]]:
    """Return the ops that take each name of the graph and the graphs inside it, and as which input; of a function what
    its body does with it."""
    of_functions: dict[tuple[str, str], dict[str, set[tuple[str, int]]]] = {}

    def within(body: Body) -> dict[str, set[tuple[str, int]]]:
        found: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for node in body.nodes:
            function = model.functions.get((node.domain, node.type))
            for i, name in enumerate(node.inputs):
                if function is None:
                    found[name].add((node.type, i))
                elif i < len(function.inputs):
                    found[name] |= inside(node.domain, node.type, function)[function.inputs[i].name]
            for value in node.attributes.values():
                if isinstance(value, Body):
                    for name, places in within(value).items():
                        found[name] |= places
        return found

    def inside(domain: str, kind: str, function: Body) -> dict[str, set[tuple[str, int]]]:
        key = (domain, kind)
        if key not in of_functions:
            of_functions[key] = within(function)
        return of_functions[key]

    return within(model.graph)


def role_of(stored: Stored, places: set[tuple[str, int]]) -> Role:
    """Return the role of a stored tensor: a parameter if it is a weight; single numbers and masks
    are none."""
    if is_float(stored.dtype):
        weight = (
            math.prod(stored.shape) > 1 and not stored.masks and any(i not in FIXED.get(kind, ()) for kind, i in places)
        )
    else:
        weight = any(i in QUANTIZED.get(kind, ()) for kind, i in places)
    return Role.PARAMETER if weight else Role.BUFFER
