"""Attention: products of queries and keys, and of their weights and values, dense whatever the mask."""

from __future__ import annotations

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, layer
from tensortide.importers.shapes import ShapeError


def _projected(call: Layer, x: Handle, name: str, heads: int, size: int) -> Handle:
    inputs = {"x": x, "kernel": call.weight(f"{name}.kernel", x.shape[-1], heads, size)}
    if call.is_true("use_bias", True):
        inputs["bias"] = call.weight(f"{name}.bias", heads, size)
    letters = "bcdefghij"[: len(x.shape) - 1]
    return call.op("EinsumDense", inputs, (*x.shape[:-1], heads, size), equation=f"{letters}a,ayz->{letters}yz")


def _named(call: Layer, position: int, name: str, default: Handle) -> Handle:
    given = call.keywords.get(name)
    if isinstance(given, Handle):
        return given
    return call.inputs[position] if position < len(call.inputs) else default


@layer("MultiHeadAttention GroupQueryAttention GroupedQueryAttention")
def multi_head(call: Layer) -> list[Handle]:
    """Projections to heads, attention, and the way back."""
    query = _named(call, 0, "query", call.inputs[0]) if call.inputs else _keyword(call, "query")
    value = _named(call, 1, "value", query)
    key = _named(call, 2, "key", value)
    if call.kind == "MultiHeadAttention":
        heads = shared = call.number("num_heads")
        size = call.number("key_dim")
        wide = size if call.config.get("value_dim") is None else call.number("value_dim")
    else:
        heads, shared = call.number("num_query_heads"), call.number("num_key_value_heads")
        size = wide = call.number("head_dim")
    if len(query.shape) != 3 or len(key.shape) != 3:
        raise ShapeError("its inputs do not have samples, tokens and features")
    q = _projected(call, query, "query", heads, size)
    k = _projected(call, key, "key", shared, size)
    v = _projected(call, value, "value", shared, wide)
    mixed = call.op(
        "dot_product_attention", {"query": q, "key": k, "value": v}, (*query.shape[:-1], heads, wide),
        causal=bool(call.keywords.get("use_causal_mask")),
    )  # fmt: skip
    output = call.config.get("output_shape")
    made = output if isinstance(output, int) else output[-1] if isinstance(output, list) and output else query.shape[-1]
    if not isinstance(made, int):
        raise ShapeError(f"its output_shape is {output!r}")
    inputs = {"x": mixed, "kernel": call.weight("attention_output.kernel", heads, wide, made)}
    if call.is_true("use_bias", True):
        inputs["bias"] = call.weight("attention_output.bias", made)
    out = call.op("EinsumDense", inputs, (*query.shape[:-1], made), equation="bcyz,yzd->bcd")
    if not call.keywords.get("return_attention_scores"):
        return [out]
    return [out, call.op("state", {"x": mixed}, (query.shape[0], heads, query.shape[1], key.shape[1]))]


def _keyword(call: Layer, name: str) -> Handle:
    found = call.keywords.get(name)
    if not isinstance(found, Handle):
        raise ShapeError(f"it has no {name}")
    return found


@layer("Attention AdditiveAttention")
def attention(call: Layer) -> Handle:
    """Attention without projections, of one head."""
    query, *rest = call.inputs
    if not rest:
        raise ShapeError("it takes a query and a value")
    value, key = rest[0], rest[-1]
    inputs = {"query": query, "key": key, "value": value}
    if call.kind == "AdditiveAttention" and call.is_true("use_scale", True):
        inputs["scale"] = call.weight("scale", query.shape[-1])
    elif call.kind == "Attention" and call.is_true("use_scale"):
        inputs["scale"] = call.weight("scale")
    return call.op(
        call.kind, inputs, (*query.shape[:-1], value.shape[-1]), causal=bool(call.keywords.get("use_causal_mask"))
    )
