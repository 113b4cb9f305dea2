"""Ops that do not compute every sample of a batch alone, where each rank has samples of its own.

Ops that pair samples, or place them by others, need those of other ranks: such a step is refused with the op. A
statistic of samples becomes that of each rank's own, as replicas compute it. It is the whole batch's only where it is a
mean, linear up to the loss; elsewhere the step is divided with a remark.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.dtypes import is_float
from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import GIVEN, Axis
from tensortide.parallelism.constant_ops import constants
from tensortide.parallelism.partials import is_view
from tensortide.parallelism.sites import base_name, located

_LOSSES = (
    *("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss", "nll_loss", "kl_div"),
    "multi_margin_loss",
)
_BY_PART = (*_LOSSES, "batch_norm", "native_batch_norm", "_native_batch_norm", "cudnn_batch_norm", "_batch_norm")
PLACED = ("index", "gather", "scatter")
_ROUTING = (*PLACED, "topk", "sort", "histc", "aminmax", "nonzero", "_grouped_mm")
"""Ops that route tokens to experts, some by their indices: each rank routes its own."""
_MEAN = 1
"""A loss of this ``reduction`` is a mean."""
_IGNORED = -100
"""Targets that PyTorch ignores unless told otherwise: padding, of which each rank is taken to have as much."""
_SUMMED = ("scatter", "index_add", "index_put", "index_copy")
_RANKED = ("topk", "sort")
_NUMBERED = ("arange", "randperm")
_LINEAR = (
    *("add", "sub", "rsub", "mul", "div", "neg", "stack", "cat", "sum", "mean", "copy", "clone", "_to_copy"),
    *("_local_scalar_dense", "is_nonzero"),
)
"""Ops that leave a mean over the batch one, beside numbers and tensors that every rank has."""


def remarks_of(analysis: Analysis, samples: frozenset[Axis], chosen: frozenset[Axis], parts: int) -> tuple[str, ...]:
    """Say what a step computes of each rank's own samples, which have ``chosen`` axes, and not of all.

    ``samples``: the axes of samples of the inputs, without what is counted among them (slots of experts).
    Raises DegreesError, with the op, where a rank cannot do without the samples of others.
    """
    _require_apart(analysis, samples, chosen)
    own = [*_mixing(analysis, chosen), *_statistics(analysis, chosen)]
    where = f"{located(analysis.graph, min(own))} is of each rank's own samples, not of the whole batch" if own else ""
    return (*_selected(analysis, parts), *([f"As replicas compute it, {where}."] if own else []))


def _require_apart(analysis: Analysis, samples: frozenset[Axis], chosen: frozenset[Axis]) -> None:
    """Raise DegreesError for an op whose result has a ``chosen`` axis twice, or ``samples`` in two dimensions, such as
    similarities of all samples, or of those of two inputs: a rank would have one block of the result, and nobody those
    beside it."""
    for index, op in enumerate(analysis.graph.ops):
        for tensor in op.outputs:
            leaves = [leaf for leaf in analysis.all_leaves(tensor) if leaf in chosen]
            across = [each for each in analysis.dims[tensor] if not samples.isdisjoint(analysis.axes.leaves([each]))]
            if len(set(leaves)) < len(leaves) or len(across) > 1:
                raise _refusal(
                    analysis.graph, index, "pairs every sample with every other, and a rank has its own alone"
                )


def _refusal(graph: Graph, index: int, why: str) -> DegreesError:
    return DegreesError(f"the batch cannot be divided: {located(graph, index)} {why}")


def _mixing(analysis: Analysis, chosen: frozenset[Axis]) -> Iterator[int]:
    """Yield the forward ops that need all samples and that each rank computes with its own: statistics, orders, and
    what rearranges inputs. Raises DegreesError for one that rearranges what the model has made of samples."""
    graph, free = analysis.graph, constants(analysis.graph)
    read = frozenset(storage for index in range(len(graph.ops)) for storage in graph.index.reads[index])
    for index, axis in sorted({(i, each) for each in chosen for i in analysis.axes.needs(each) if i != GIVEN}):
        op = graph.ops[index]
        name = base_name(graph.calls[op.call].op)
        if op.phase is not Phase.FORWARD or op.recompute:
            continue
        if name.startswith(PLACED) and axis in analysis.all_leaves(op.inputs[0]):
            _require_own_numbers(analysis, chosen, index)
        # Each rank routes by whole numbers and places of its own.
        if name != "randperm" and not any(is_float(graph.tensors[t].dtype) for t in op.inputs):
            continue
        kept = any(axis in analysis.all_leaves(t) for t in op.outputs)
        if name in _RANKED or not op.inputs:
            kept = name == "sort" and graph.index.owner[op.outputs[0]] in read
        elif by_part(graph, index):
            continue
        if kept and index not in free:
            raise _refusal(graph, index, "rearranges or mixes samples, and a rank has its own alone")
        yield index


def _require_own_numbers(analysis: Analysis, chosen: frozenset[Axis], index: int) -> None:
    """Raise DegreesError where an op takes samples by numbers that are those of the whole batch: the same on all ranks,
    or that nothing but the size of the batch has made."""
    graph = analysis.graph
    for tensor in graph.ops[index].inputs[1:]:
        if is_float(graph.tensors[tensor].dtype) or graph.tensors[tensor].dtype == "bool":
            continue
        maker = next((op for op in reversed(graph.ops[:index]) if tensor in op.outputs), None)
        literal = maker is not None and not maker.inputs
        if maker is not None and base_name(graph.calls[maker.call].op) in _NUMBERED:
            continue
        if literal or (graph.tensors[tensor].numel > 1 and chosen.isdisjoint(analysis.all_leaves(tensor))):
            raise _refusal(graph, index, "takes samples by their numbers in the whole batch")


def _statistics(analysis: Analysis, chosen: frozenset[Axis]) -> Iterator[int]:
    """Yield the forward ops of which a mean over the batch does not come out as the mean of those of all ranks."""
    graph, leaves, owner = analysis.graph, analysis.axes.leaves, analysis.graph.index.owner
    free, waiting = constants(graph), set[int]()
    for index, op in enumerate(graph.ops):
        if op.phase is not Phase.FORWARD or op.recompute:
            continue
        if by_part(graph, index):
            if _gathers_up(analysis, chosen, op) or _is_weighted(analysis, op):
                yield index
            continue
        if index in free and not any(is_float(graph.tensors[t].dtype) for t in op.outputs):
            continue  # a number of targets, by which each rank divides its own loss
        hows = {each.how for each in analysis.partials.get(index, ()) if not chosen.isdisjoint(leaves(each.axes))}
        here = [t for t in op.inputs if owner[t] in waiting]
        if not hows <= {"sum", "avg"} or (here and not _is_linear(analysis, chosen, op, here)):
            yield index
        elif hows or here:
            waiting.update(graph.index.writes[index])


def _gathers_up(analysis: Analysis, chosen: frozenset[Axis], op: Op) -> bool:
    """Return whether an op places samples where no sample is any more: sums of groups of them."""
    name = base_name(analysis.graph.calls[op.call].op)
    if not name.startswith(_SUMMED) or not op.outputs:
        return False
    inputs, outputs = (
        any(not chosen.isdisjoint(analysis.all_leaves(t)) for t in some) for some in (op.inputs, op.outputs)
    )
    return inputs and not outputs


def _is_weighted(analysis: Analysis, op: Op) -> bool:
    """Return whether an op is a mean of losses over the weights of their targets, of which each rank has its own sum:
    weights of classes, or of one class that counts for nothing."""
    call = analysis.graph.calls[op.call]
    values = dict(call.arguments)
    if not base_name(call.op).startswith("nll_loss") or values.get("reduction") != _MEAN:
        return False
    return len(op.inputs) > len(("scores", "targets")) or values.get("ignore_index") != _IGNORED


def _is_linear(analysis: Analysis, chosen: frozenset[Axis], op: Op, means: list[int]) -> bool:
    """Return whether the result of an op is a mean over the batch as the tensors ``means`` that it reads are."""
    graph = analysis.graph
    call = graph.calls[op.call]
    name = base_name(call.op)
    if is_view(call, op, graph.index.owner.__getitem__):
        return True
    alone = not any(chosen.intersection(analysis.all_leaves(t)) for t in (*op.inputs, *op.outputs))
    if name in ("mul", "div") and (len(means) > 1 or (name == "div" and means[0] != op.inputs[0])):
        return False
    return alone and name in _LINEAR


def _selected(analysis: Analysis, parts: int) -> Iterator[str]:
    """Yield the remark about elements that are selected by their values, if there are any."""
    graph = analysis.graph
    for index, op in enumerate(graph.ops):
        name = base_name(graph.calls[op.call].op)
        masks = [t for t in op.inputs[1:] if name == "index" and graph.tensors[t].dtype == "bool"]
        if name == "nonzero" or masks:
            yield f"What values select ({located(graph, index)}) is taken to be 1/{parts} of it in each part."
            return


def by_part(graph: Graph, index: int) -> bool:
    """Return whether each rank does the op at ``index`` with its own samples or tokens alone: the mean of a loss,
    statistics over a batch, routing to experts."""
    name = base_name(graph.calls[graph.ops[index].call].op)
    return name.startswith(_ROUTING + _BY_PART)
