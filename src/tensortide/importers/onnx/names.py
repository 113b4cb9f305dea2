"""Names of ops, and of their inputs as the schemas of ONNX name them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tensortide.importers.onnx.read import Node

CONTRIB = {
    "Attention": "input weights bias mask_index past attention_bias past_sequence_length",
    "QAttention": "input weight bias input_scale weight_scale mask_index",
    "MultiHeadAttention": "query key value bias key_padding_mask attention_bias past_key past_value",
    "GroupQueryAttention": "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache",
    "FusedMatMul": "A B", "TransposeMatMul": "A B", "MatMulNBits": "A B scales zero_points", "FusedConv": "X W B Z",
    "FusedGemm": "A B C", "SkipLayerNormalization": "input skip gamma beta bias", "NhwcConv": "X W B",
    "SkipSimplifiedLayerNormalization": "input skip gamma bias", "BiasGelu": "A B", "FastGelu": "X bias",
    "EmbedLayerNormalization": "input_ids segment_ids word_embedding position_embedding segment_embedding gamma beta",
    "QGemm": "A a_scale a_zero B b_scale b_zero C y_scale y_zero", "GemmFastGelu": "X W bias",
    "MatMulIntegerToFloat": "A B a_scale b_scale a_zero b_zero bias",
    "DynamicQuantizeMatMul": "A B b_scale b_zero bias",
    "QLinearConv": "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B",
    "DynamicQuantizeLSTM": "X W R B sequence_lens initial_h initial_c P", "ConvTranspose": "X W B",
}  # fmt: skip
"""Names of the inputs of ops of ``com.microsoft``, which onnx has no schemas of."""


def op_name(node: Node) -> str:
    """Return the name of the op of ``node`` in a Graph: ``onnx.Conv``, ``com.microsoft::FusedMatMul``."""
    return node.full_type if node.domain else f"onnx.{node.type}"


@functools.cache
def _schema(kind: str, domain: str, version: int) -> tuple[str, ...]:
    if domain == "com.microsoft" and kind in CONTRIB:
        return tuple(CONTRIB[kind].split())
    from onnx import defs

    try:
        schema = defs.get_schema(kind, version, domain)
    except defs.SchemaError:
        return ()
    variadic = defs.OpSchema.FormalParameterOption.Variadic
    return tuple("" if port.option == variadic else port.name for port in schema.inputs)


def input_names(node: Node, version: int, places: Sequence[int]) -> list[str]:
    """Name the inputs at ``places``: as the schema does, or ``x0``, ``x1``, ..."""
    known = _schema(node.type, node.domain, version)
    names = [known[i] if i < len(known) and known[i] else f"x{i}" for i in places]
    return names if len(set(names)) == len(names) else [f"x{i}" for i in range(len(places))]
