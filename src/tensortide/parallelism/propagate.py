"""Propagation of shardings along one axis of the mesh: the Graph of one rank, from a seed.

Along an axis of the mesh each tensor has a *spec*: sharded along some of its dimensions, replicated, or partial until
the ranks combine it. A *seed* says which axes of the step start sharded. All else follows: which tensors are sharded
with those (``analysis``), which results are partial and how far (``partials``), which ops have another local form
(``local_forms``), and what is exchanged where a stand-in for it stands (``exchange``). Axes of the mesh follow one
another: each seed is of the Graph that the one before has made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.draft import Draft, compacted
from tensortide.parallelism.exchange import AMONG, PREFIX, note_ranks
from tensortide.parallelism.local import LocalSizes
from tensortide.parallelism.local_forms import local_form
from tensortide.parallelism.partials import Partials
from tensortide.parallelism.sites import base_name

ALL = ("sum", "avg", "max", "min", "norm")
"""Every way in which partial results are combined."""


class Division(NamedTuple):
    """Division of the tensors of a Graph: by the ``chosen`` axes of its ``analysis``, among ``parts`` ranks of the
    ``group``. ``grown`` axes are as many times longer on each rank."""

    analysis: Analysis
    chosen: frozenset[Axis]
    parts: int
    group: str
    grown: frozenset[Axis] = frozenset()

    def dims(self, tensor: int) -> tuple[int, ...]:
        """The dimensions along which a tensor is sharded."""
        axes, dims = self.analysis.axes, self.analysis.dims[tensor]
        return tuple(dim for dim, axis in enumerate(dims) if not self.chosen.isdisjoint(axes.leaves([axis])))

    def partials(self, index: int) -> dict[int, str]:
        """The outputs that the op at ``index`` makes partial, and how each is combined."""
        leaves = self.analysis.axes.leaves
        found = self.analysis.partials.get(index, ())
        return {each.output: each.how for each in found if not self.chosen.isdisjoint(leaves(each.axes))}

    def require(self, prefix: str, allowed: Callable[[Axis, int], bool] = lambda axis, index: False) -> None:
        """Raise DegreesError, which begins with ``prefix``, for an op that does not work on parts of the divided axes,
        but for those ``allowed``."""
        for axis in sorted(self.chosen | self.grown):
            for why in self.analysis.reasons(axis, functools.partial(allowed, axis)):
                raise DegreesError(f"{prefix}: {why}")


@dataclass(frozen=True, slots=True)
class Seed:
    """Specs that a step starts with along one axis of the mesh, those of ``division``, on ``rank``.

    Args:
        combined: ways of combining partial results that an op completes which needs the whole. The others are left to
            the average of gradients over ranks.
        means: gradients are averaged over the ranks, so that a mean over a sharded axis is that of each rank's part.
        adapt: meets each op of the draft, to change what is around it.
    """

    division: Division
    rank: int
    combined: Collection[str] = ()
    means: bool = False
    adapt: Callable[[Draft, int, Op], None] | None = None

    def draft(self) -> Draft:
        """The step of the rank, as a Draft to change further."""
        division = self.division
        sizes = LocalSizes(division.analysis, division.chosen, division.parts, division.grown, means=self.means)
        draft = Draft(sizes.graph())
        note_ranks(draft, division.group, division.parts, self.rank)
        partials = Partials(draft, division.group, division.parts)
        for index, op in enumerate(draft.graph.ops):
            self._meet(draft, sizes, partials, index, op)
        partials.end()
        return draft

    def graph(self) -> Graph:
        """The Graph of the rank."""
        draft = self.draft()
        return compacted(draft.finished() if draft.before or draft.replaced else draft.graph)

    def _meet(self, draft: Draft, sizes: LocalSizes, partials: Partials, index: int, op: Op) -> None:
        """Complete what an op needs whole, and give it its local form."""
        call = draft.calls[op.call]
        name = call.op
        if base_name(name) == "scatter_along" and AMONG not in dict(call.arguments):
            for tensor in op.inputs:
                partials.pending.pop(draft.tensors[tensor].storage, None)  # it sums them itself
            return
        made = {out: how for out, how in self.division.partials(index).items() if how in self.combined}
        partials.read(index, op, made)
        if name.startswith(PREFIX):
            return
        form = local_form(draft, sizes, partials.group, self.rank, op, bool(made))
        if form is not None:
            draft.replaced[index] = form
        if self.adapt is not None:
            self.adapt(draft, index, op)
