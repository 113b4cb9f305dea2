"""Rules of products: matrices, attention, convolutions, embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.parallelism.layout import cut_all
from tensortide.parallelism.rules.table import lettered, rule
from tensortide.parallelism.sites import Partial, Ref, Site

CONVOLUTIONS = ("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution")


def contracted(site: Site, dims: Sequence[tuple[str, str]]) -> None:
    """Operands and result by the letters of their dimensions; any other operand is added, and repeats."""
    *operands, (_, result) = dims
    refs = [site.inputs[int(name)] if name.isdigit() else site.arguments[name] for name, _ in operands]
    lettered(site, {ref: letters for ref, (_, letters) in zip(refs, operands, strict=True)}, {_out(site): result})
    for ref in site.inputs:
        if ref not in refs:
            site.broadcast(_out(site), ref)


def _out(site: Site) -> Ref:
    return site.outputs[0]


@rule(
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)
def attention(site: Site) -> None:
    """Batches and heads are independent; each group of query heads reads one head of keys and values."""
    query, key, value = (site.arguments[name] for name in ("query", "key", "value"))
    backward = site.name.endswith("backward")
    heads = _grouped_heads(site, query, key)
    shared = [site.arguments.get(name) for name in ("grad_out", "out", "logsumexp")]
    like_query = [ref for ref in shared if isinstance(ref, Ref)]
    if not backward:
        like_query += [ref for ref in (site.outs(0), site.outs(1)) if ref is not None]
    for ref in like_query:
        for dim in (0, 1, 2)[: site.rank(ref)]:
            site.tie(query, dim, ref, dim)
    for ref in (key, value):
        site.tie(query, 0, ref, 0)
        site.tie(key, 1, ref, 1)
        site.tie(key, 2, ref, 2)
    for name in ("attn_mask", "attn_bias"):
        if site.has(name):
            _tie_mask(site, query, key, site.arguments[name])
    if backward:
        for position, ref in enumerate((query, key, value)):
            out = site.outs(position)
            if out is not None:
                site.tie_all(ref, out)
                if position and heads:
                    site.partials.append(heads._replace(output=int(out)))
    for ref in (query, key, value, *like_query[:1]):
        site.whole(ref, 2, 3)


def _tie_mask(site: Site, query: Ref, key: Ref, mask: Ref) -> None:
    """A mask is (batch, heads, queries, keys), of which any may be 1 or, from the left, be missing."""
    rank = site.rank(mask)
    for back, (ref, dim) in enumerate(((key, 2), (query, 2), (query, 1), (query, 0)), 1):
        if back <= rank and site.size(mask, -back) == site.size(ref, dim):
            site.tie(ref, dim, mask, -back)


def _grouped_heads(site: Site, query: Ref, key: Ref) -> Partial | None:
    """Tie the heads of keys to the outer part of those of queries; the partial sum over the inner part, if there is
    one."""
    many, few = site.size(query, 1), site.size(key, 1)
    if many == few:
        site.tie(query, 1, key, 1)
        return None
    parts = site.axes.split([site.dims[query][1]], many // few) if many % few == 0 else None
    if parts is None:
        site.cut(query, 1)
        site.cut(key, 1)
        return None
    site.axes.tie(parts[0], [site.dims[key][1]])
    return Partial(-1, tuple(parts[1]), "sum")


@rule("embedding")
def embedding(site: Site) -> None:
    """vh, ... -> ...h: rows of the table are looked up, so that the output is a sum over shards of them."""
    weight, indices, out = site.arguments["weight"], site.arguments["indices"], _out(site)
    for dim in range(site.rank(indices)):
        site.tie(out, dim, indices, dim)
    site.tie(out, -1, weight, 1)
    site.partial(out, weight, [0])


@rule("embedding_dense_backward")
def embedding_backward(site: Site) -> None:
    """The gradient of a table of embeddings: a sum over all that was looked up."""
    grad, indices, out = site.arguments["grad_output"], site.arguments["indices"], _out(site)
    for dim in range(site.rank(indices)):
        site.tie(grad, dim, indices, dim)
    site.tie(grad, -1, out, 1)
    site.partial(out, grad, range(site.rank(grad) - 1))


@rule(*CONVOLUTIONS)
def convolution(site: Site) -> None:
    """Images and output channels are independent, input channels of a group are summed."""
    data, weight, out = site.arguments.get("input", site.inputs[0]), site.arguments["weight"], _out(site)
    _channels(site, data, weight, out)
    inside, outside = (1, 0) if not site.arguments.get("transposed") else (0, 1)
    if site.arguments.get("groups", 1) == 1:
        site.partial(out, weight, [inside])
    if site.has("bias"):
        site.tie(weight, outside, site.arguments["bias"], 0)


@rule("convolution_backward")
def convolution_backward(site: Site) -> None:
    """Gradients of data, weight and bias."""
    grad, data, weight = (site.arguments[name] for name in ("grad_output", "input", "weight"))
    _channels(site, data, weight, grad)
    of_data, of_weight, of_bias = (site.outs(i) for i in range(3))
    outside = 0 if not site.arguments.get("transposed") else 1
    if of_data is not None:
        site.tie_all(data, of_data)
        if site.arguments.get("groups", 1) == 1:
            site.partial(of_data, weight, [outside])
    if of_weight is not None:
        site.tie_all(weight, of_weight)
        site.partial(of_weight, grad, [0])
    if of_bias is not None:
        site.tie(grad, 1, of_bias, 0)
        site.partial(of_bias, grad, [0])


def _channels(site: Site, data: Ref, weight: Ref, out: Ref) -> None:
    """Tie images and channels; space is cut, and so are the channels of a group of a grouped convolution."""
    site.tie(data, 0, out, 0)
    for ref in (data, weight, out):
        site.cut(ref, *range(2, site.rank(ref)))
    if site.arguments.get("groups", 1) == 1:
        inside, outside = (1, 0) if not site.arguments.get("transposed") else (0, 1)
        site.tie(data, 1, weight, inside)
        site.tie(out, 1, weight, outside)
        return
    groups = site.arguments["groups"]
    parts = [
        (site.axes.split([site.dims[ref][dim]], site.size(ref, dim) // groups), ref, dim)
        for ref, dim in ((data, 1), (out, 1), (weight, 0))
    ]
    first = parts[0][0]
    for part, ref, dim in parts:
        if part is None or first is None:
            site.cut(ref, dim)
        else:
            site.axes.tie(first[0], part[0])
            cut_all(site.axes, part[1], f"{site.where} works on groups of it")
    site.cut(weight, 1)
