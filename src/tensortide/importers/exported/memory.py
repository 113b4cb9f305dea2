"""Memory of an op's results: which of them lie in an argument, and which arguments it writes.

Programs say neither. Op names do, for the ops of ATen; a result that an op copies only where it must lies in its
argument where the layouts allow that.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.graph.strides import reshaped
from tensortide.importers.exported.program import Arg, Node, Type, refs

_VIEWS = """
    view view_as _unsafe_view _reshape_alias transpose t numpy_T permute movedim moveaxis swapaxes swapdims expand
    expand_as broadcast_to slice select narrow split split_with_sizes chunk tensor_split hsplit vsplit dsplit unbind
    squeeze unsqueeze unflatten diagonal linalg_diagonal as_strided unfold detach alias lift_fresh positive real imag
    view_as_real view_as_complex _conj _neg_view mT mH matrix_H adjoint
"""
_RESHAPING = "reshape reshape_as flatten ravel"
_SAME_IF_ALIKE = """
    contiguous to type_as float half double bfloat16 int long bool cpu cuda dropout feature_dropout alpha_dropout
    feature_alpha_dropout conj resolve_conj resolve_neg pin_memory _autocast_to_full_precision
    _autocast_to_reduced_precision
"""
VIEWS, RESHAPING, SAME_IF_ALIKE = (frozenset(names.split()) for names in (_VIEWS, _RESHAPING, _SAME_IF_ALIKE))
"""Ops whose results lie in their argument: always; where strides for them exist; where nothing changes."""
_EACH = frozenset(["meshgrid", "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d"])
_STATISTICS = ("running_mean", "running_var")
_NORMS = {
    "batch_norm": ("training", 5),
    "native_batch_norm": ("training", 5),
    "_native_batch_norm_legit": ("training", 5),
    "cudnn_batch_norm": ("training", 5),
    "instance_norm": ("use_input_stats", 5),
    "batch_norm_with_update": ("", 0),
}
"""Normalizations that write running statistics: the argument that says whether, and its place."""


def bases(node: Node, types: Mapping[str, Type]) -> tuple[str | None, ...]:
    """For each output the tensor in whose storage it lies, None for one with a storage of its own."""
    if not node.op.startswith(("aten.", "prims.")):
        return (None,) * len(node.outputs)
    read = [name for _, value in node.arguments for name in refs(value)]
    base = node.base
    if base in _EACH:
        return tuple(read[: len(node.outputs)]) + (None,) * (len(node.outputs) - len(read))
    if not read or base.startswith("_foreach_"):
        return (None,) * len(node.outputs)
    if (writes(node) and base.endswith("_")) or base in VIEWS:
        return tuple(None if name is None else read[0] for name in node.outputs)
    return tuple(read[0] if name and _kept(node, types[read[0]], types[name]) else None for name in node.outputs)


def _kept(node: Node, before: Type, after: Type) -> bool:
    """True if an op that copies only where it must need not copy."""
    if (before.dtype, before.device) != (after.dtype, after.device):
        return False
    if node.base in RESHAPING:
        return reshaped(before.shape, before.strides, after.shape) is not None
    if "dropout" in node.base and node.argument("train", 2) is not False:
        return False
    alike = (before.shape, before.strides) == (after.shape, after.strides)
    return node.base in SAME_IF_ALIKE and alike and node.argument("copy") is not True


_OWN_OFFSET = frozenset(
    ["as_strided", "diagonal", "linalg_diagonal", "imag", "real", "view_as_real", "view_as_complex"]
)


def offsets(node: Node, types: Mapping[str, Type], base: int) -> list[int]:
    """Return the offset, in elements, of each result of an op whose results lie in its first tensor, at ``base``.

    A program that PyTorch has loaded says 0 everywhere, so that offsets follow from the calls.
    """
    names = [name or "" for name in node.outputs]
    read = types[refs(node.arguments[0][1])[0]]
    if node.base in _OWN_OFFSET or any(name and types[name].dtype != read.dtype for name in names):
        return [types[name].offset if name else 0 for name in names]
    dim, index = _part(node)
    if not (isinstance(dim, int) and -len(read.strides) <= dim < len(read.strides) and len(read.shape)):
        return [base] * len(names)
    step, size = read.strides[dim], read.shape[dim]
    if isinstance(index, int):
        return [base + (index + size if index < 0 else min(index, size)) * step] * len(names)
    lengths = [types[name].shape[dim] if name and node.base != "unbind" else 1 for name in names]
    return [base + sum(lengths[:place]) * step for place in range(len(names))]


def _part(node: Node) -> tuple[Arg, Arg]:
    """The dimension along which an op takes parts, None if it takes all, and the first index of the only part."""
    match node.base:
        case "select":
            return node.argument("dim", 1), node.argument("index", 2)
        case "slice" | "narrow":
            return node.argument("dim", 1) or 0, node.argument("start", 2) or 0
        case "split" | "split_with_sizes" | "chunk" | "tensor_split":
            return node.argument("dim", 2) or 0, None
        case "unbind":
            return node.argument("dim", 1) or 0, None
    return None, None


def writes(node: Node) -> list[str]:
    """The tensors that an op writes in place."""
    named = {name: refs(value) for name, value in node.arguments}
    base = node.base
    if base.endswith("_") and not base.endswith("__"):
        return next(iter(named.values()), [])[: None if base.startswith("_foreach_") else 1]
    if base in _NORMS:
        flag, place = _NORMS[base]
        if flag and node.argument(flag, place) is not True:
            return []
        return [name for key in _STATISTICS for name in named.get(key, [])]
    out = node.op.rpartition(".")[2]
    return named.get("out", []) if out == "out" or out.endswith("_out") else []
