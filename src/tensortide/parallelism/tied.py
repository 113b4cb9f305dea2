"""Parameters that several parts of a step use, such as the table of a tied embedding: what each part adds to their
gradient.

Autograd adds up the gradients that the uses of a parameter give. Where the uses are in several parts (stages of a
pipeline, or units of a placement), each part can keep a sum of its own over all micro-batches, and the sums of the
parts are added once a step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.graph.communication import moves_data
from tensortide.graph.model import Graph, Phase, Role

SUMS = ("aten.add.Tensor", "aten.add_.Tensor")
_GROUP = "tied_"


class Contribution(NamedTuple):
    """The sum of all that one part adds to a gradient: a tensor of it, and the part."""

    tensor: int
    part: int


class TiedGradient(NamedTuple):
    """A gradient to which several parts contribute, in a step of one micro-batch.

    Args:
        storage: that of the gradient.
        total: the tensor of the gradient once it is complete.
        contributions: those of the parts, in the order in which the backward pass adds them; their memory is that of
            the gradient or has no other use.
        sums: ops that add contributions of different parts, ascending.
        after: later ops of the backward pass on the whole gradient: views, and collectives.
    """

    storage: int
    total: int
    contributions: tuple[Contribution, ...]
    sums: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        """The parts that contribute, ascending."""
        return tuple(sorted({each.part for each in self.contributions}))


def tied_group(stages: Sequence[int]) -> str:
    """The name of the process group of these pipeline stages.

    Examples:
        >>> tied_group([0, 3]), tied_stages("tied_0_3"), tied_stages("data")
        ('tied_0_3', (0, 3), ())
    """
    return _GROUP + "_".join(map(str, stages))


def tied_stages(group: str) -> tuple[int, ...]:
    """The stages of a group that ``tied_group`` has named; none for any other."""
    return tuple(map(int, group.removeprefix(_GROUP).split("_"))) if group.startswith(_GROUP) else ()


def tied_gradients(graph: Graph, part_of: Sequence[int | None]) -> tuple[TiedGradient, ...]:
    """The gradients to which several parts contribute. ``part_of``: the part of each op.

    Left out are gradients that are used before the backward pass ends, and those of which a contribution has another
    use, or another layout than the gradient.
    """
    end = graph.index.backward_end
    walk = _Walk(graph, part_of)
    found = []
    for number, held in enumerate(graph.storages):
        stays = held.birth is not None and (held.death is None or held.death > end)
        if held.role is Role.GRADIENT and stays and (tied := walk.gradient(number, end)):
            found.append(tied)
    return tuple(found)


class _Walk:
    """Goes back from a gradient through the sums that make it."""

    def __init__(self, graph: Graph, part_of: Sequence[int | None]) -> None:
        self.graph, self.part_of = graph, part_of
        self.writers: list[list[int]] = [[] for _ in graph.storages]
        for op, storages in enumerate(graph.index.writes):
            for storage in storages:
                self.writers[storage].append(op)

    def gradient(self, storage: int, end: int) -> TiedGradient | None:
        """The contributions to a gradient that is complete before the op at ``end``; None if it is not tied."""
        index = self.graph.index
        last = self._writer(storage, end)
        while last is not None and moves_data(self.graph[last].name):
            last = self._writer(storage, last)
        if last is None or not self._is_sum(last):
            return None
        total = self.graph.ops[last].outputs[0]
        contributions, sums = self._value(total, last + 1, storage)
        after = [op for op in index.users[storage] if last < op < end]
        plain = all(self.graph[op].is_view or moves_data(self.graph[op].name) for op in after)
        if len({each.part for each in contributions}) < 2 or not plain:
            return None
        if not all(self._is_own(each, storage, total, sums) for each in contributions):
            return None
        return TiedGradient(storage, total, tuple(contributions), tuple(sorted(sums)), tuple(after))

    def _writer(self, storage: int, before: int) -> int | None:
        """The last op before the one at ``before`` that writes a storage."""
        at = bisect_left(self.writers[storage], before)
        return self.writers[storage][at - 1] if at else None

    def _is_sum(self, index: int) -> bool:
        """True for the sum of two gradients, of equal shapes."""
        op, tensors = self.graph.ops[index], self.graph.tensors
        call = self.graph.calls[op.call]
        if call.op not in SUMS or op.phase is not Phase.BACKWARD or len(op.inputs) != 2 or len(call.arguments) != 2:
            return False
        return len({(tensors[t].shape, tensors[t].dtype) for t in (*op.inputs, *op.outputs)}) == 1

    def _value(self, tensor: int, at: int, gradient: int) -> tuple[list[Contribution], list[int]]:
        """The contributions to what the op at ``at`` reads of a tensor, and the sums of different parts in it. What is
        no part's is of part -1. Without recursion: the weights of a recurrent layer have a sum for every time step."""
        found: list[tuple[list[Contribution], list[int]]] = []
        walk: list[tuple[int, int, bool]] = [(tensor, at, False)]  # the last: its terms have been found
        while walk:
            number, reader, has_terms = walk.pop()
            writer = self._writer(self.graph.index.owner[number], reader)
            part = None if writer is None else self.part_of[writer]
            if writer is None or part is None:
                found.append(([Contribution(number, -1)], []))
            elif has_terms:
                (right, others), (left, some) = found.pop(), found.pop()
                both = [*left, *right]
                alone = {each.part for each in both} == {part}
                found.append(([Contribution(number, part)], []) if alone else (both, [*some, *others, writer]))
            elif self._is_sum(writer) and not self._is_read(self.graph.index.owner[number], writer, reader, gradient):
                walk.append((number, reader, True))
                walk += [(each, writer, False) for each in reversed(self.graph.ops[writer].inputs)]
            else:
                found.append(([Contribution(number, part)], []))
        return found[0]

    def _is_read(self, storage: int, writer: int, reader: int, gradient: int) -> bool:
        """Return whether an op but ``reader`` reads what ``writer`` wrote; of the gradient one before ``reader``."""
        users = self.graph.index.users[storage]
        end = bisect_left(users, reader) if storage == gradient else len(users)
        later = users[bisect_right(users, writer) : end]
        return any(op != reader and not self.graph[op].is_view for op in later)

    def _is_own(self, each: Contribution, storage: int, total: int, sums: Sequence[int]) -> bool:
        """Return whether the memory of a contribution may be that of the gradient: made and used by its part alone,
        and with the same layout."""
        tensors, index = self.graph.tensors, self.graph.index
        own, view, whole = index.owner[each.tensor], tensors[each.tensor], tensors[total]
        if each.part < 0 or (view.shape, view.strides, view.offset) != (whole.shape, whole.strides, whole.offset):
            return False
        if own == storage:
            return True
        held = self.graph.storages[own]
        alone = all(self.part_of[op] == each.part for op in index.users[own] if op not in sums)
        before = max(index.users[own]) in sums
        return held.birth is not None and held.nbytes == self.graph.storages[storage].nbytes and alone and before
