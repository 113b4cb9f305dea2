"""Sizes of the batch, or of its sequences, that a step computed in Python and recorded as numbers: a sum over the batch
divided by one.

A replica that runs the program divides by the size of its own part. In a Graph the size is a number like any other; it
is recognized by what it divides: a sum over axes of which some have as many elements together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.draft import Draft, replace
from tensortide.parallelism.sites import base_name, located, with_values

_SCALED = ("div", "mul")
_OF_TARGETS = ("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss")
_SUM = 2
"""A loss of this ``reduction`` is a sum."""
_OF_SUM = "The loss is a sum over {0}, not a mean: gradients averaged over {1} parts are 1/{1} of the whole step's."
_LINEAR = ("neg", "clone", "_to_copy", "detach", "alias", "sum", "mean", *_SCALED)


class _Key(NamedTuple):
    """An op that divides by a number, or multiplies by its inverse, as its gradient does again: the op, the number, the
    shape, and the module."""

    op: str
    number: float
    shape: tuple[int, ...]
    module: int


@dataclass(slots=True)
class RecordedSizes:
    """The numbers of an analysed step that are sizes of the batch or of sequences, which have the ``chosen`` axes.

    ``numbers``: by op, the one to use on one of ``parts``. ``sums``: tensors that are sums over the batch, each with
    the axes that it sums. Raises DegreesError where a number may be a size of the batch or another.
    """

    analysis: Analysis
    chosen: Collection[Axis]
    parts: int
    numbers: dict[int, float] = field(default_factory=dict)
    sums: dict[int, tuple[Axis, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.analysis.graph
        sizes: dict[_Key, int] = {}
        others: dict[_Key, int] = {}
        for index, op in enumerate(graph.ops):
            key = _key(graph, op)
            if op.phase is Phase.FORWARD and not op.recompute:
                found = self._meet(index, op, key)
                if key is not None:
                    (others if found is None else sizes).setdefault(key, index)
                if found is not None:
                    self.numbers[index] = found
            elif key in sizes:
                if key in others:
                    raise DegreesError(
                        f"{located(graph, index)} has the number {key.number:g}, which is a size of the batch in "
                        f"{located(graph, sizes[key])} and none in {located(graph, others[key])}: capture the step "
                        "with another batch"
                    )
                self.numbers[index] = self.numbers[sizes[key]]

    def remarks(self, over: str) -> tuple[str, ...]:
        """Say, in a remark, that the backward pass begins at a sum ``over`` the divided axes, if it does."""
        graph = self.analysis.graph
        first = next((op for op in graph.ops if op.phase is Phase.BACKWARD), None)
        is_sum = first is not None and any(tensor in self.sums for tensor in first.inputs)
        return (_OF_SUM.format(over, self.parts),) if is_sum else ()

    def adapt(self, draft: Draft, index: int, op: Op) -> None:
        """Give the op at ``index`` of the step of one part the number that takes the place of a size of the batch."""
        if index in self.numbers:
            call = draft.calls[op.call]
            draft.replaced[index] = [replace(op, call=draft.call(with_values(call, {"other": self.numbers[index]})))]

    def _meet(self, index: int, op: Op, key: _Key | None) -> float | None:
        """Note what an op of the forward pass sums; the number that takes the place of a size in it."""
        name = base_name(self.analysis.graph.calls[op.call].op)
        for tensor, leaves in self._summed(index, op, name):
            if not set(self.chosen).isdisjoint(leaves):
                self.sums[tensor] = tuple(leaves)
        owner = self.analysis.graph.index.owner
        inputs = [t for t in op.inputs if t in self.sums]
        views = bool(op.outputs) and {owner[t] for t in op.outputs} <= {owner[t] for t in op.inputs}
        linear = name in _LINEAR and len(inputs) == 1
        if not inputs or not (linear or views or (name in ("add", "sub") and len(inputs) == len(op.inputs))):
            return None
        axes = tuple(dict.fromkeys(axis for t in inputs for axis in self.sums[t]))
        found = None if key is None else self._local(index, axes, key)
        for tensor in op.outputs:
            if found is None:
                self.sums[tensor] = tuple(dict.fromkeys((*axes, *self.sums.get(tensor, ()))))
            else:
                self.sums.pop(tensor, None)  # in place
        return found

    def _summed(self, index: int, op: Op, name: str) -> Iterator[tuple[int, list[Axis]]]:
        """Yield each result of an op that is a sum, with the axes that it sums."""
        analysis = self.analysis
        for partial in analysis.partials.get(index, ()):
            if partial.how == "sum":
                yield partial.output, analysis.axes.leaves(partial.axes)
        if name in _OF_TARGETS and dict(analysis.graph.calls[op.call].arguments).get("reduction") == _SUM:
            yield op.outputs[0], analysis.all_leaves(op.inputs[1])

    def _local(self, index: int, axes: tuple[Axis, ...], key: _Key) -> float | None:
        """The number of one part if that of an op is the size of some ``axes``, those of the batch among them."""
        size = 1 / key.number if key.op == "mul" else key.number
        subsets = itertools.chain.from_iterable(itertools.combinations(axes, n) for n in range(1, len(axes) + 1))
        sizes = self.analysis.axes.size
        same = [each for each in subsets if math.isclose(math.prod(sizes[a] for a in each), size, rel_tol=1e-9)]
        of_batch = [each for each in same if not set(self.chosen).isdisjoint(each)]
        if not of_batch:
            return None
        if len(of_batch) < len(same):
            raise DegreesError(
                f"{located(self.analysis.graph, index)} divides a sum by {size:g}: of the batch, or of another "
                "dimension? Capture the step with another batch"
            )
        return key.number * self.parts if key.op == "mul" else size / self.parts


def _key(graph: Graph, op: Op) -> _Key | None:
    """The key of an op that scales one tensor by a number."""
    call = graph.calls[op.call]
    number = dict(call.arguments).get("other")
    name = base_name(call.op)
    if name not in _SCALED or not isinstance(number, int | float) or isinstance(number, bool) or not number:
        return None
    return _Key(name, number, tuple(graph.tensors[op.inputs[0]].shape), op.module)
