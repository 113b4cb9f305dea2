"""Facts about calls that decide how they can be recomputed: side effects, random numbers, contents."""

from __future__ import annotations

from tensortide.graph.model import TENSOR, Call

STATISTICS = ("running_mean", "running_var")
"""Arguments of normalisations that training writes but whose old value no output depends on."""

NORMALISATIONS = {
    "aten._native_batch_norm_legit": "training",
    "aten._batch_norm_with_update": "",
    "aten._batch_norm_impl_index": "training",
    "aten.native_batch_norm": "training",
    "aten.batch_norm": "training",
    "aten.cudnn_batch_norm": "training",
    "aten.miopen_batch_norm": "training",
}
"""Ops, without their overloads, that update running statistics, each with the argument that says whether it does; one
without such an argument always does."""

_DROPOUT = frozenset({"dropout", "dropout_p"})
"""Arguments of ops that draw random numbers only if this one is not 0."""
_ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "new_empty", "new_empty_strided"}
)


def blind_slots(call: Call) -> frozenset[int]:
    """Holes of ``call`` that it updates without its outputs depending on what was there before.

    Such an op can be recomputed at any time, without the update: running statistics in training.
    """
    decides = NORMALISATIONS.get(call.op.rpartition(".")[0])
    if decides is None or (decides and dict(call.arguments).get(decides) is not True):
        return frozenset()
    holes = [name for name, value in call.arguments if value is TENSOR]
    return frozenset(slot for slot, name in enumerate(holes) if name in STATISTICS)


def draws_random(call: Call) -> bool:
    """Tell whether ``call`` draws random numbers: recomputed from another generator state it gives other values."""
    off = any(value == 0 for name, value in call.arguments if name in _DROPOUT)
    return "random" in call.tags and not off


def only_allocates(call: Call) -> bool:
    """Tell whether ``call`` makes a storage without contents, which a later op fills."""
    namespace, name, *_ = call.op.split(".")
    return namespace == "aten" and name in _ALLOCATIONS
