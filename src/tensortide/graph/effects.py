"""Facts about calls that decide how they can be recomputed: side effects, random numbers, contents."""

from __future__ import annotations

from tensortide.graph.model import TENSOR, Call

_STATISTICS = frozenset({"running_mean", "running_var"})
"""Arguments of normalisations that training writes but whose old value no output depends on."""

_NORMALISATIONS = frozenset(
    {
        "aten._native_batch_norm_legit.default",
        "aten._batch_norm_with_update.default",
        "aten._batch_norm_impl_index.default",
        "aten.native_batch_norm.default",
        "aten.batch_norm.default",
        "aten.cudnn_batch_norm.default",
        "aten.miopen_batch_norm.default",
    }
)

_DROPOUT = frozenset({"dropout", "dropout_p"})
"""Arguments of ops that draw random numbers only if this one is not 0."""
_ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "new_empty", "new_empty_strided"}
)


def blind_slots(call: Call) -> frozenset[int]:
    """Holes of ``call`` that it updates without its outputs depending on what was there before.

    Such an op can be computed again at any time, without the update: running statistics in training.
    """
    if call.op not in _NORMALISATIONS or dict(call.arguments).get("training") is not True:
        return frozenset()
    holes = [name for name, value in call.arguments if value is TENSOR]
    return frozenset(slot for slot, name in enumerate(holes) if name in _STATISTICS)


def draws_random(call: Call) -> bool:
    """Tell whether ``call`` draws random numbers: recomputed from another generator state it gives other values."""
    off = any(value == 0 for name, value in call.arguments if name in _DROPOUT)
    return "random" in call.tags and not off


def only_allocates(call: Call) -> bool:
    """Tell whether ``call`` makes a storage without contents, which a later op fills."""
    namespace, name, *_ = call.op.split(".")
    return namespace == "aten" and name in _ALLOCATIONS
