"""The bounds of the minimal footprint as expressions: sums of storages that hold whatever the sizes are.

What is unavoidable at an op follows from the dependencies alone, so the largest of those sums is a lower bound at all
sizes; so is the largest of the sums resident under one order an upper bound. Each is the best known only at the sizes
for which the order was found.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tensortide.errors import PlanError
from tensortide.expr import Expr, constant, expr_of, maximum, total
from tensortide.graph.model import Graph
from tensortide.memory.workspace import workspace_of
from tensortide.plans.order.minimal import footprint
from tensortide.plans.order.problem import START, Problem, mask, problem


class Moment(msgspec.Struct, frozen=True):
    """Storages resident together while op ``op`` runs, ascending; its workspace counts beside them."""

    op: int
    storages: tuple[int, ...]


class Bounds(msgspec.Struct, frozen=True):
    """Moments whose largest sum is a bound at all sizes: ``lower`` under any order, ``upper`` under one that is best
    at the sizes' values. Moments that can nowhere be the largest by their storages are left out; the largest at the
    sizes' values comes first."""

    device: str
    lower: tuple[Moment, ...]
    upper: tuple[Moment, ...]


def bounds_of(graph: Graph, *, device: str | None = None, workspace: bool = True) -> Bounds:
    """The bounds of the minimal footprint of ``graph``, storage by storage.

    ``lower`` are the unavoidable sets of all ops, ``upper`` what is resident under the order that ``footprint`` finds.
    Raises PlanError for a graph with loops, GraphError if nothing of it is on ``device``.
    """
    if graph.loops:
        raise PlanError(f"bounds of a step with loops have no formula: write out {graph.loops[0].name!r} first")
    found = footprint(graph, device=device, workspace=workspace)
    stated = problem(graph, found.device, workspace=workspace)
    extra = [workspace_of(graph, op, found.device) if workspace else 0 for op in range(len(graph))]
    return Bounds(
        found.device,
        _largest(graph, stated, extra, _unavoidable(stated)),
        _largest(graph, stated, extra, _resident(stated, found.order)),
    )


def minimal_bounds(graph: Graph, *, device: str | None = None, workspace: bool = True) -> tuple[Expr, Expr]:
    """Lower and upper bound of the minimal footprint of ``graph`` in bytes, as expressions.

    For sizes that are ``tensortide.expr.Size``; a size that is a plain number stays one. The bounds hold wherever the
    sizes' expressions do. Workspace is what its rules make of the sizes: within ``tensortide.expr.conditions`` it is
    recorded what they rely on. Raises what ``bounds_of`` does.
    """
    bounds = bounds_of(graph, device=device, workspace=workspace)

    def level(moment: Moment) -> Expr:
        extra = workspace_of(graph, moment.op, bounds.device) if workspace and moment.op >= 0 else 0
        return total(expr_of(nbytes) for nbytes in (extra, *(graph.storages[s].nbytes for s in moment.storages)))

    return maximum(*map(level, bounds.lower)), maximum(*map(level, bounds.upper))


def _unavoidable(stated: Problem) -> Iterator[tuple[int, int]]:
    """Each op with the blocks that are resident during it in every order, as a mask: allocated by it or what it must
    follow, and needed by it or what must follow it (``cuts.unavoidable``)."""
    count, given = len(stated), mask(b for b, birth in enumerate(stated.birth) if birth == START)
    made, needed = [given] * count, [0] * count
    for op in range(count):
        for earlier in stated.before[op]:
            made[op] |= made[earlier]
        made[op] |= mask(block for block in stated.uses[op] if stated.birth[block] == op)
    kept = mask(block for block, touching in enumerate(stated.users) if touching[-1] == count)
    for op in reversed(range(count)):
        needed[op] = kept | mask(stated.uses[op])
        for later in stated.after[op]:
            needed[op] |= needed[later]
    return ((op, made[op] & needed[op]) for op in range(count))


def _resident(stated: Problem, order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each op of ``order`` with the blocks that are resident during it, as a mask."""
    left = [len(touching) for touching in stated.users]
    held = mask(b for b, birth in enumerate(stated.birth) if birth == START)
    for op in order:
        held |= mask(block for block in stated.uses[op] if stated.birth[block] == op)
        yield op, held
        for block in stated.uses[op]:
            left[block] -= 1
            if not left[block]:
                held ^= 1 << block


def _largest(
    graph: Graph, stated: Problem, extra: Sequence[int], moments: Iterable[tuple[int, int]]
) -> tuple[Moment, ...]:
    """One moment for each sum that can be the largest: as many storages of each size are the same, and a part of the
    storages of another moment is no more."""
    sizes: dict[Expr, int] = {}
    for block, storage in enumerate(stated.storage):
        size = expr_of(graph.storages[storage].nbytes)
        sizes[size] = sizes.get(size, 0) | 1 << block
    nbytes = [stated.nbytes[members.bit_length() - 1] for members in sizes.values()]
    found: dict[object, tuple[int, int, int, Expr]] = {}
    for op, blocks in moments:
        counts = tuple([(blocks & members).bit_count() for members in sizes.values()])
        level = sum(map(operator.mul, counts, nbytes)) + int(extra[op])
        found.setdefault((counts, expr_of(extra[op])), (-level, op, blocks, expr_of(extra[op])))
    kept: list[tuple[int, int, Expr]] = []
    for _, op, blocks, more in sorted(found.values(), key=lambda entry: entry[:2]):
        if all(blocks & ~other or more not in (constant(0), most) for _, other, most in kept):
            kept.append((op, blocks, more))
    return tuple(
        Moment(op, tuple(sorted(stated.persistent + [s for b, s in enumerate(stated.storage) if blocks >> b & 1])))
        for op, blocks, _ in kept or [(-1, 0, constant(0))]
    )
