"""Causal attention of a part of the queries over all keys."""

from __future__ import annotations

from tensortide.graph.model import TENSOR, Const, Op, Tensor
from tensortide.parallelism.draft import Draft, Hole, replace
from tensortide.parallelism.sites import base_name

_MASKS = ("attn_mask", "attn_bias")


class CausalMasks:
    """Replaces causal masks of the kernels of a draft, whose queries are those of the ``rank`` of ``ranks``.

    A kernel that takes a mask gets one, made once for all layers. The others align the last query with the last key:
    right for the last rank as they are.
    """

    def __init__(self, draft: Draft, ranks: int, rank: int) -> None:
        self.draft, self.ranks, self.rank = draft, ranks, rank
        self.known: dict[tuple[str, int, int], int] = {}

    def apply(self, index: int, op: Op) -> None:
        """Meet one kernel, at ``index`` of the draft."""
        call = self.draft.calls[op.call]
        arguments = dict(call.arguments)
        queries, keys = (self.draft.tensors[op.inputs[i]].shape[2] for i in self._places(op))
        if not arguments.get("is_causal") or queries == keys:
            return
        masked = self._masked(base_name(call.op))
        if masked is None:
            return
        ops, mask = self._mask(op, queries, keys)
        given = {name: value for name, value in arguments.items() if name not in _MASKS} | {"is_causal": False}
        tensors = dict(zip([n for n, v in call.arguments if v is TENSOR], op.inputs, strict=True)) | {masked: mask}
        order = list(arguments) if masked in arguments else [*arguments, masked]
        values = {name: Hole(tensors[name]) if name in tensors else given.get(name) for name in order}
        positional = call.positional
        made = self.draft.op(call.op, values, op.outputs, like=op, positional=positional, tags=call.tags)
        changed = replace(self.draft.calls[made.call], returns=call.returns)
        self.draft.insert(index, *ops)
        self.draft.replaced[index] = [replace(made, call=self.draft.call(changed))]

    def _places(self, op: Op) -> tuple[int, int]:
        """The positions of query and key among the tensors of a kernel."""
        names = [name for name, value in self.draft.calls[op.call].arguments if value is TENSOR]
        return names.index("query"), names.index("key")

    @staticmethod
    def _masked(name: str) -> str | None:
        """The argument of a kernel that is its mask."""
        if "flash_attention_for_cpu" in name:
            return "attn_mask"
        return None if "flash" in name else "attn_bias"

    def _mask(self, op: Op, queries: int, keys: int) -> tuple[list[Op], int]:
        """Mask to add to the scores: -inf where a key comes after the query. (queries, keys), repeated for heads."""
        query = op.inputs[self._places(op)[0]]
        batch, heads = self.draft.tensors[query].shape[:2]
        dtype = self.draft.tensors[query].dtype
        ops: list[Op] = []
        if (dtype, queries, keys) not in self.known:
            full, mask = (self.draft.fresh(query, (queries, keys)) for _ in range(2))
            device = self.draft.storages[self.draft.tensors[full].storage].device
            given: dict[str, object] = {"size": (queries, keys), "fill_value": float("-inf")}
            given |= {"dtype": Const("dtype", dtype), "device": Const("device", device)}
            ops.append(self.draft.op("aten.full.default", given, [full], like=op, positional=2))
            diagonal = {"self": Hole(full), "diagonal": self.rank * queries + 1}
            ops.append(self.draft.op("aten.triu.default", diagonal, [mask], like=op))
            self.known[dtype, queries, keys] = mask
        mask = self.known[dtype, queries, keys]
        view = self.draft.tensors[mask]
        shape = (batch, heads, queries, keys)
        repeated = self.draft.tensor(Tensor(view.storage, view.dtype, shape, (0, 0, *view.strides)))
        expand = {"self": Hole(mask), "size": shape}
        ops.append(self.draft.op("aten.expand.default", expand, [repeated], like=op, tags=["view"]))
        return ops, repeated
