"""Axes of a captured step: what its ops tie together, and where sharding an axis leaves partial results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tensortide.dtypes import is_packed
from tensortide.graph.model import Graph, Role
from tensortide.parallelism.axes import GIVEN, Axes, Axis
from tensortide.parallelism.layout import cut_all, tie_view
from tensortide.parallelism.rules import rule_of
from tensortide.parallelism.sites import Partial, Site, located


class Analysis(NamedTuple):
    """The axes of ``graph``: of every tensor one for each dimension, and the partial results of every op."""

    graph: Graph
    axes: Axes
    dims: list[list[Axis]]
    partials: dict[int, list[Partial]]

    def leaves(self, tensor: int) -> list[Axis]:
        """The finest axes of a tensor, those that repeat memory left out."""
        strides = self.graph.tensors[tensor].strides
        return self.axes.leaves([axis for axis, stride in zip(self.dims[tensor], strides, strict=True) if stride])

    def all_leaves(self, tensor: int) -> list[Axis]:
        """The finest axes of a tensor."""
        return self.axes.leaves(self.dims[tensor])

    def distances(self, tensor: int) -> Iterator[tuple[Axis, int]]:
        """The finest axes of a tensor, each with the elements of memory between two neighbours along it; 0 where they
        are repeated."""
        for axis, stride in zip(self.dims[tensor], self.graph.tensors[tensor].strides, strict=True):
            at = stride
            for leaf in reversed(self.axes.leaves([axis])):
                yield leaf, at
                at *= self.axes.size[leaf]

    def reasons(self, axis: Axis, allowed: Callable[[int], bool] = lambda index: False) -> Iterator[str]:
        """Yield why a finest axis cannot be divided or is needed whole, for each op but those ``allowed``: the op, its
        module and line, and the reason."""
        for index, why in self.axes.needs(axis).items():
            if index == GIVEN:
                yield why
            elif not allowed(index):
                where = located(self.graph, index)
                yield why if where in why else f"{where}: {why}"


def analyzed(graph: Graph) -> Analysis:
    """The axes of ``graph``, from the rule of every op."""
    axes = Axes()
    dims = [[axes.new(int(size)) for size in tensor.shape] for tensor in graph.tensors]
    partials: dict[int, list[Partial]] = {}
    produced = {tensor for op in graph.ops for tensor in op.outputs}
    for tensor, own in zip(graph.tensors, dims, strict=True):
        if is_packed(tensor.dtype):
            cut_all(axes, own, f"elements of {tensor.dtype} share bytes")
    _tie_given_views(graph, axes, dims, produced)
    _tie_gradients(graph, axes, dims)
    for index, op in enumerate(graph.ops):
        call = graph.calls[op.call]
        axes.at = index
        site = Site.of(graph, axes, dims, index)
        fresh = _tie_views(site)
        if fresh or call.mutated or not op.outputs:
            (rule_of(call.op, call.tags) or _unknown)(site)
        if site.partials:
            partials[index] = site.partials
    return Analysis(graph, axes, dims, partials)


def _tie_views(site: Site) -> bool:
    """Tie outputs that view an input; True if an output does not."""
    tensors = site.graph.tensors
    by_storage = {tensors[ref].storage: ref for ref in reversed(site.inputs)}
    fresh = False
    for out in site.outputs:
        base = by_storage.get(tensors[out].storage)
        if base is None:
            fresh = True
        elif (order := _order(site)) is not None:  # strides do not tell apart dimensions that repeat memory
            pairs = [(site.dims[base][dim], own) for dim, own in zip(order, site.dims[out], strict=True)]
            for one, own in pairs:
                if base == out and one != own:
                    cut_all(site.axes, [one, own], "its transpose is the same tensor, of one element that repeats")
                elif base != out:
                    site.axes.tie([one], [own])
        elif base != out:
            tie_view(site.axes, tensors[base], site.dims[base], tensors[out], site.dims[out])
    return fresh


def _order(site: Site) -> list[int] | None:
    """The dimensions of the operand of a transposition in the order of its result; None for other ops."""
    if site.name not in ("t", "transpose", "permute"):
        return None
    order = list(range(site.rank(site.inputs[0])))
    if site.name == "permute":
        return [order[dim] for dim in site.arguments["dims"]]
    one, other = (site.arguments.get(name, dim) for name, dim in (("dim0", 0), ("dim1", -1)))
    if order:
        order[one], order[other] = order[other], order[one]
    return order


def _tie_given_views(graph: Graph, axes: Axes, dims: list[list[Axis]], produced: set[int]) -> None:
    """Tie views that no op of the step makes to the largest tensor of their storage."""
    given: dict[int, list[int]] = {}
    for tensor in {t for op in graph.ops for t in op.inputs} | {entry.tensor for entry in graph.named}:
        if tensor not in produced:
            given.setdefault(graph.tensors[tensor].storage, []).append(tensor)
    for tensors in given.values():
        base = max(tensors, key=lambda t: (graph.tensors[t].numel, -t))
        for tensor in tensors:
            if tensor != base:
                tie_view(axes, graph.tensors[base], dims[base], graph.tensors[tensor], dims[tensor])


def _tie_gradients(graph: Graph, axes: Axes, dims: list[list[Axis]]) -> None:
    """Tie each gradient, that of the step before too, which no op may touch, to its parameter."""
    parameters = {entry.name: entry.tensor for entry in graph.named if entry.role is Role.PARAMETER}
    for entry in graph.named:
        parameter = parameters.get(entry.name.removesuffix(".grad")) if entry.role is Role.GRADIENT else None
        if parameter is not None and graph.tensors[parameter].shape == graph.tensors[entry.tensor].shape:
            for one, other in zip(dims[parameter], dims[entry.tensor], strict=True):
                axes.tie([one], [other])


def _unknown(site: Site) -> None:
    site.cut_everything("has no sharding rule")
