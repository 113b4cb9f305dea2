"""Facts about calls that decide how they can be recomputed: side effects, random numbers, contents."""

from __future__ import annotations

from tensortide.graph.communication import COMMUNICATION
from tensortide.graph.model import TENSOR, Call, Const, OpView

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
    "aten.batch_norm_gather_stats": "",
    "aten.batch_norm_gather_stats_with_counts": "",
    "aten.batch_norm_update_stats": "",
}
"""Ops, without their overloads, that update running statistics, each with the argument that says whether it does; one
without such an argument always does."""

_DROPOUT = frozenset({"dropout", "dropout_p"})
"""Arguments of ops that draw random numbers only if this one is not 0."""
_ATTENTION = ("aten.scaled_dot_product_attention.", "aten._scaled_dot_product_", "aten._cudnn_attention_forward.")
"""Beginnings of ops whose dropout is 0 unless given; PyTorch's dispatcher leaves out what is the default."""
ALLOCATIONS = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "new_empty"),
        *("new_empty_strided", "_empty_affine_quantized", "_empty_per_channel_affine_quantized"),
    }
)
CONSTANTS: dict[str, float | None] = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero_"), 0.0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1.0),
    **dict.fromkeys(("full", "full_like", "new_full", "fill_"), None),
}
"""Ops that give every element of a tensor one number, which is an argument where it is None here."""
_FILLS = frozenset(
    {
        *("zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_"),
        *("cauchy_", "log_normal_"),
    }
)
"""Ops that write a whole tensor, whatever was in it."""
_INDEXED = ("aten.index.Tensor", "aten.index.Tensor_out")
"""Ops whose result depends on values only where an index is a mask: integers select as many elements as there are."""
_MASKS = ("bool", "uint8")
_VALUES = frozenset({"data_dependent", "dynamic_shape"})
"""Tags of ops that return a value to the host, or results whose sizes depend on values."""
_NO_CONTENTS = frozenset({*ALLOCATIONS, "resize", "resize_as", "_resize_output", "set"})
"""Ops whose variants with ``out=`` do not write the whole of it."""


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
    shares = [value for name, value in call.arguments if name in _DROPOUT]
    off = 0 in shares or (not shares and call.op.startswith(_ATTENTION))
    return "random" in call.tags and not off


def has_generator(call: Call) -> bool:
    """Tell whether ``call`` is given a generator, whose state a checkpoint does not restore: only those of the default
    generators."""
    return any(isinstance(value, Const) and value.kind == "generator" for _, value in call.arguments)


def runs_once(call: Call) -> bool:
    """Tell whether ``call`` may not run a second time within a step: other processes take part in it, or it is a call
    over functions or other objects that a graph cannot hold."""
    namespace = call.op.partition(".")[0]
    opaque = any(isinstance(value, Const) and value.kind == "opaque" for _, value in call.arguments)
    return opaque or namespace in COMMUNICATION or namespace in ("profiler", "inductor")


def only_allocates(call: Call) -> bool:
    """Tell whether ``call`` makes a storage without contents, which a later op fills."""
    namespace, name, *_ = call.op.split(".")
    return namespace == "aten" and name in ALLOCATIONS


def fills(name: str, outs: int) -> bool:
    """Tell whether the PyTorch op ``name``, without its overload, writes a whole tensor, whatever was in it: the one
    that it is named after, or its argument ``out`` if it has one (``outs``: how many)."""
    return name in _FILLS if not outs else outs == 1 and name not in _NO_CONTENTS


def overwritten_slot(call: Call) -> int | None:
    """The hole of ``call`` that it overwrites as a whole, as far as that tensor goes, without reading it; None if there
    is none."""
    namespace, name, *_ = call.op.split(".")
    outs = len(call.mutated) if any(argument == "out" for argument, _ in call.arguments) else 0
    if namespace == "aten" and len(call.mutated) == 1 and fills(name, outs):
        return call.mutated[0]
    return None


def reads_value(view: OpView) -> bool:
    """Tell whether the host waits for a value of a tensor: it is the result, or sizes of results depend on one."""
    if view.name in _INDEXED:
        return any(tensor.dtype in _MASKS for tensor in view.inputs[1:])
    return not _VALUES.isdisjoint(view.call.tags)
