"""Rules of reductions, normalizations, softmax and losses."""

from __future__ import annotations

from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Ref, Site

_HOW = {"sum": "sum", "mean": "avg", "amax": "max", "max": "max", "amin": "min", "min": "min"}
"""Operation that combines the parts of a reduction, by kind; any other kind needs the whole."""
NORMS = ("linalg_vector_norm", "norm", "_foreach_norm")
"""Roots of sums of squares, of a tensor or of each of a list."""


@rule(
    *("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "argmax", "argmin", "var", "std", "var_mean"),
    *("std_mean", "logsumexp", "norm", "linalg_vector_norm", "median", "nansum", "count_nonzero"),
)
def reduction(site: Site) -> None:
    """Tie what remains, in order; what is reduced is combined over the ranks."""
    if len(site.inputs) > 1:  # the larger or smaller of two tensors
        for operand in site.inputs:
            site.broadcast(site.outputs[0], operand)
        return
    data = site.inputs[0]
    rank = site.rank(data)
    reduced = _reduced(site.arguments.get("dim"), rank)
    how = _HOW.get(site.name)
    if site.name in ("norm", "linalg_vector_norm") and site.arguments.get("ord", site.arguments.get("p", 2)) == 2:
        how = "norm"
    if site.name in ("max", "min") and len(site.outputs) > 1:
        how = None  # it also says where
    for out in site.outputs:
        kept = [dim for dim in range(rank) if dim not in reduced]
        targets = kept if site.rank(out) == rank else list(range(site.rank(out)))
        for dim, target in zip(kept, targets, strict=False):
            site.tie(data, dim, out, target)
        if how is not None:
            site.partial(out, data, sorted(reduced), how)
    if how is None:
        site.whole(data, *reduced)


def _reduced(dim: object, rank: int) -> set[int]:
    if isinstance(dim, int):
        return {dim % max(rank, 1)} if rank else set()
    if isinstance(dim, tuple) and dim:
        return {each % rank for each in dim if isinstance(each, int)} if rank else set()
    return set(range(rank))


@rule("argsort", "flip", "roll", "logcumsumexp", "glu", "glu_backward", "glu_jvp", "glu_backward_jvp", "linalg_cross")
def along(site: Site) -> None:
    """Work along some dimensions, which are needed whole; all others are independent."""
    data = site.inputs[0]
    named = site.arguments.get("dim", site.arguments.get("dims", -1))
    dims = _reduced(named, site.rank(data))
    for ref in (*site.inputs[1:], *site.outputs):
        if site.rank(ref) == site.rank(data):
            site.tie_all(data, ref)
    site.whole(data, *dims)


@rule("multinomial")
def drawn(site: Site) -> None:
    """Rows are independent."""
    if site.rank(site.inputs[0]) == 2:
        site.tie(site.inputs[0], 0, site.outputs[0], 0)
    for ref in (site.inputs[0], site.outputs[0]):
        site.whole(ref, site.rank(ref) - 1)


@rule("_log_softmax", "_log_softmax_backward_data")
def log_softmax(site: Site) -> None:
    """Over a sharded dimension statistics of each row are combined; the others are independent."""
    for ref in (*site.inputs[1:], *site.outputs):
        site.tie_all(site.inputs[0], ref)


@rule("nll_loss_forward", "nll_loss2d_forward", "nll_loss_backward", "nll_loss2d_backward")
def nll_loss(site: Site) -> None:
    """Classes are dimension 1, or 0 without a batch; the loss is combined over all targets."""
    data, target = site.arguments["self"], site.arguments["target"]
    classes = 1 if site.rank(data) > 1 else 0
    others = [dim for dim in range(site.rank(data)) if dim != classes]
    for dim, of_target in zip(others, range(site.rank(target)), strict=False):
        site.tie(data, dim, target, of_target)
        site.whole(data, dim)
    if site.has("weight"):
        site.tie(data, classes, site.arguments["weight"], 0)
        site.whole(data, classes)
    out = site.outputs[0]
    if site.name.endswith("backward"):
        site.tie_all(data, out)
    elif site.rank(out):
        site.tie_all(target, out)


@rule("multi_margin_loss", "multi_margin_loss_backward")
def multi_margin_loss(site: Site) -> None:
    """Classes are the last dimension, each compared with that of the target; the loss is combined over all targets."""
    data, target = site.arguments["self"], site.arguments["target"]
    classes = site.rank(data) - 1
    site.whole(data, classes)
    if site.has("weight"):
        site.tie(data, classes, site.arguments["weight"], 0)
    if classes:
        site.tie(data, 0, target, 0)
        site.whole(data, 0)
    out = site.outputs[0]
    if site.rank(out):
        site.tie_all(data if site.name.endswith("backward") else target, out)


@rule(
    *("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss", "kl_div"),
    "binary_cross_entropy_with_logits",
    *("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward"),
    "soft_margin_loss_backward",
)
def loss(site: Site) -> None:
    """An element-wise loss; its mean or sum is combined over all elements."""
    data = site.arguments["self"]
    for ref in (*site.inputs, *site.outputs):
        if site.rank(ref):
            site.broadcast(data, ref)
    if not site.rank(site.outputs[0]):
        how = "sum" if site.arguments.get("reduction", 1) == 2 else "avg"
        site.partial(site.outputs[0], data, range(site.rank(data)), how)
    elif site.name.endswith("backward") and site.arguments.get("reduction", 1) == 1:
        site.whole(data, *range(site.rank(data)))  # it divides by the number of elements


@rule("native_layer_norm", "_fused_rms_norm", "native_layer_norm_backward", "_fused_rms_norm_backward")
def layer_norm(site: Site) -> None:
    """Rows are independent; what is normalized is needed whole."""
    data = site.arguments["input"]
    rank = site.rank(data)
    normalized = len(site.arguments["normalized_shape"])
    parameters = [site.arguments[name] for name in ("weight", "bias") if site.has(name)]
    outs = [(position, site.outs(position)) for position in range(3)]
    backward = site.name.endswith("backward")
    for ref in site.inputs:
        if ref not in parameters:
            _tie_rows(site, data, ref)
    for position, out in outs:
        if out is None:
            continue
        if backward and position:
            parameters.append(out)
            site.partial(out, data, range(rank - normalized))
        else:
            _tie_rows(site, data, out)
    for ref in parameters:
        site.broadcast(data, ref)
    site.whole(data, *range(rank - normalized, rank))


def _tie_rows(site: Site, data: Ref, ref: Ref) -> None:
    for dim in range(min(site.rank(data), site.rank(ref))):
        if site.size(ref, dim) == site.size(data, dim):
            site.tie(data, dim, ref, dim)


@rule(
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm"),
    *("_batch_norm_with_update", "native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward"),
)
def batch_norm(site: Site) -> None:
    """Channels, dimension 1, are independent. Statistics are over the images of a rank."""
    backward = site.name.endswith("backward")
    data = site.arguments["input"]
    for ref in (*site.inputs, *site.outputs):
        if site.rank(ref) == site.rank(data):
            site.tie_all(data, ref)
        elif site.rank(ref) == 1 and site.size(ref, 0) == site.size(data, 1):
            site.tie(data, 1, ref, 0)
    site.whole(data, *(dim for dim in range(site.rank(data)) if dim != 1))
    if backward:
        for position in (1, 2):
            site.partial(site.outs(position), data, [0])


@rule("native_group_norm", "native_group_norm_backward")
def group_norm(site: Site) -> None:
    """Images and groups of channels are independent; the channels of a group and space are needed whole."""
    data = site.arguments["input"]
    channels = [site.dims[data][1]]
    parts = site.axes.split(channels, site.size(data, 1) // site.arguments["group"])
    parameters = [site.arguments[name] for name in ("weight", "bias") if site.has(name)]
    for ref in (*site.inputs, *site.outputs):
        if ref in parameters or site.rank(ref) == 1:
            for dim in range(site.rank(ref)):
                site.axes.tie([site.dims[data][1]], [site.dims[ref][dim]])
        elif site.rank(ref) == site.rank(data):
            site.tie_all(data, ref)
        elif site.rank(ref) == 2:
            site.tie(data, 0, ref, 0)
            if parts is not None:
                site.axes.tie(parts[0], [site.dims[ref][1]])
    for axis in channels if parts is None else parts[1]:
        site.axes.whole(axis, f"{site.where} needs the whole of it")
    site.whole(data, *range(2, site.rank(data)))
    if site.name.endswith("backward"):
        for position in (1, 2):
            site.partial(site.outs(position), data, [0])


@rule("_weight_norm_interface", "_weight_norm_interface_backward")
def weight_norm(site: Site) -> None:
    """A norm for each index of one dimension of a weight, over all others, which are needed whole."""
    weight = site.inputs[0]
    for ref in (*site.inputs[1:], *site.outputs):
        if site.rank(ref) == site.rank(weight):
            site.tie_all(weight, ref)
    kept = site.arguments.get("dim", 0) % site.rank(weight)
    site.whole(weight, *(dim for dim in range(site.rank(weight)) if dim != kept))
