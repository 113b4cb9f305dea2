"""What a recomputed op must not do twice."""

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


def blind_slots(call: Call) -> frozenset[int]:
    """Holes of ``call`` that it updates without its outputs depending on what was there before.

    Such an op can be computed again at any time, without the update: running statistics in training.
    """
    if call.op not in _NORMALISATIONS or dict(call.arguments).get("training") is not True:
        return frozenset()
    holes = [name for name, value in call.arguments if value is TENSOR]
    return frozenset(slot for slot, name in enumerate(holes) if name in _STATISTICS)
