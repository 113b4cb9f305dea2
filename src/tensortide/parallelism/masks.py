"""Causal attention of a part of the queries over all keys."""

from __future__ import annotations

from tensortide.graph.model import Op, Tensor
from tensortide.parallelism.draft import Hole, replace
from tensortide.parallelism.exchange import Exchange, form
from tensortide.parallelism.sites import base_name, holes_of

_MASKS = ("attn_mask", "attn_bias")


@form("gather")
def over_all_keys(exchange: Exchange) -> list[Op]:
    """A kernel with the causal mask of the queries of a rank.

    A kernel that takes a mask gets one, made once for all layers. The others align the last query with the last key:
    right for the last rank as they are.
    """
    draft, op = exchange.draft, exchange.like
    call = draft.calls[op.call]
    arguments, masked = dict(call.arguments), _masked(base_name(call.op))
    tensors = dict(zip(holes_of(call), op.inputs, strict=True))
    queries, keys = (draft.tensors[tensors[name]].shape[2] for name in ("query", "key"))
    if masked is None or not arguments.get("is_causal") or queries == keys:
        return [op]
    ops, mask = _mask(exchange, tensors["query"], queries, keys)
    given = {name: value for name, value in arguments.items() if name not in _MASKS} | {"is_causal": False}
    tensors |= {masked: mask}
    order = list(arguments) if masked in arguments else [*arguments, masked]
    values = {name: Hole(tensors[name]) if name in tensors else given.get(name) for name in order}
    made = draft.op(call.op, values, op.outputs, like=op, positional=call.positional, tags=call.tags)
    returns = replace(draft.calls[made.call], returns=call.returns)
    return [*ops, replace(made, call=draft.call(returns))]


def _masked(name: str) -> str | None:
    """The argument of a kernel that is its mask."""
    if "flash_attention_for_cpu" in name:
        return "attn_mask"
    return None if "flash" in name else "attn_bias"


def _mask(exchange: Exchange, query: int, queries: int, keys: int) -> tuple[list[Op], int]:
    """Mask to add to the scores: -inf where a key comes after the query. (queries, keys), repeated for heads."""
    draft, op, known = exchange.draft, exchange.like, exchange.common
    batch, heads = draft.tensors[query].shape[:2]
    key, ops = (draft.tensors[query].dtype, queries, keys), list[Op]()
    if key not in known:
        full, known[key] = (draft.fresh(query, (queries, keys)) for _ in range(2))
        given = {"size": (queries, keys), "fill_value": float("-inf")}
        ops.append(draft.factory("full.default", full, given, like=op))
        diagonal = {"self": Hole(full), "diagonal": exchange.rank * queries + 1}
        ops.append(draft.op("aten.triu.default", diagonal, [known[key]], like=op))
    view, shape = draft.tensors[known[key]], (batch, heads, queries, keys)
    repeated = draft.tensor(Tensor(view.storage, view.dtype, shape, (0, 0, *view.strides)))
    expand = {"self": Hole(known[key]), "size": shape}
    ops.append(draft.op("aten.expand.default", expand, [repeated], like=op, tags=["view"]))
    return ops, repeated
