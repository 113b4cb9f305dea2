"""The minimal footprint of a step: the smallest peak over all orders of its ops, with the order and a proof; and its
bounds as expressions, sums of storages that hold whatever the sizes are.

What is unavoidable at an op follows from the dependencies alone, so the largest of those sums is a lower bound at all
sizes; so is the largest of the sums resident under one order an upper bound. Each is the best known only at the sizes
for which the order was found.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from tensortide.errors import PlanError
from tensortide.expr import Expr, constant, expr_of, maximum, total
from tensortide.graph.model import Graph
from tensortide.graph.validate import require_graph
from tensortide.memory.workspace import workspace_of
from tensortide.plans.model import Plan, in_order
from tensortide.plans.order.cuts import sure_blocks
from tensortide.plans.order.incumbent import Budget, Exhausted, Incumbent, Stop, Watch
from tensortide.plans.order.orders import Case, solve, studied
from tensortide.plans.order.problem import START, Problem, Stated, mask, problem, stated
from tensortide.plans.order.proof import Cut, Either, Persistent, Proof
from tensortide.plans.order.proof import Exhausted as Searched
from tensortide.plans.order.search import bisect, explore
from tensortide.search_limit import SearchLimit
from tensortide.shown import Show, Shown

WORK = 40_000_000
"""Default work limit: about half a minute of one core for large graphs, a minute for searches of small ones."""

TIME_LIMIT_S = 60.0
"""Seconds after which a search ends that is given no limit."""

_SMALL = 256
"""Up to so many ops the exact searches go far before branching is tried."""

_STATES = (2_000,), (20_000, 400_000)
"""Sets of ops of a size that the search by layers keeps: few to come close, then more."""

_SETS = 60_000_000
"""The exact search keeps at most so many sets of ops, times ops: memory of some hundred MiB."""


Loops: TypeAlias = Literal["none", "written out", "together"]
"""How the loops of a step take part: it has none; every op of every iteration may move; or each outermost loop runs in
one stretch with its ops as recorded, and the bounds are over the orders that do so."""


class MinimalFootprint(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The smallest peak over all orders of a step's ops: ``lower_bytes <= smallest <= upper_bytes``.

    ``upper_bytes`` is the peak of ``plan``; ``lower_bytes`` is proved by ``proof`` (checked by
    ``plans.order.proof.verify``). ``captured_peak_bytes`` is the peak of the order of the recorded step,
    ``persistent_bytes`` what is resident throughout, ``footprint_bytes`` the sum of all storages, each under the rule
    ``last_use`` (``memory.lifetimes``) and on ``device`` alone. ``peak_op`` is the op of the Graph at the peak of
    ``plan`` (-1 for a step without ops), ``residents`` the storages resident with it, ascending, ``workspace_bytes``
    what its kernel takes beside them. ``loops`` says which orders the bounds are over; of a step with loops, ops,
    storages and ``plan`` are those of ``graph.unrolled(graph)``. ``stop`` says why the search ended, whose limits were
    ``work`` steps and ``time_s`` seconds (None: no limit).
    """

    SECTION = "order"
    device: str
    loops: Loops
    lower_bytes: Annotated[int, Show("lower bound", level=1)]
    upper_bytes: Annotated[int, Show("Minimal peak")]
    captured_peak_bytes: Annotated[int, Show("Recorded order")]
    persistent_bytes: Annotated[int, Show("Persistent")]
    footprint_bytes: Annotated[int, Show("All storages")]
    peak_op: int
    workspace_bytes: int
    residents: tuple[int, ...]
    certificate: str
    stop: Stop
    work: int
    time_s: float | None
    proof: Proof
    plan: Plan

    @property
    def gap_bytes(self) -> int:
        """``upper_bytes - lower_bytes``."""
        return self.upper_bytes - self.lower_bytes

    @property
    def proved(self) -> bool:
        """True if no order has a smaller peak."""
        return self.gap_bytes == 0

    @property
    def order(self) -> tuple[int, ...]:
        """The ops of the Graph in the order that attains ``upper_bytes``."""
        return self.plan.order


def footprint(
    graph: Graph,
    *,
    device: str | None = None,
    workspace: bool = True,
    work_limit: int | None = None,
    time_limit_s: float | None = None,
    watch: Watch | None = None,
) -> MinimalFootprint:
    """The smallest peak of memory that ``graph`` can have on ``device`` if its ops may be put into any order.

    Each op runs once: nothing is recomputed, evicted or offloaded. An order respects what ops read from each other and
    the recorded order of writes and other accesses to the same storage. Storages are released by the rule ``last_use``
    (``memory.lifetimes``).

    Orders made in one pass are refined at minimum cuts, which are lower bounds too; what gap remains is closed by exact
    search over sets of ops done and by branch and bound. The answer depends on the graph and on ``work_limit`` alone,
    unless the time runs out.

    Args:
        device: default ``Index.main_device``; ops on others take part in the order and hold nothing on it.
        workspace: count what kernels take inside an op (``memory.workspace``), at that op only.
        work_limit: limit of the search in counted steps of about a microsecond each, by default ``WORK``.
        time_limit_s: hard stop of the search in seconds, by default 60 without a ``work_limit`` and none with one.
        watch: called with the bounds so far now and then; ends the search by returning False.

    Loops are written out; a step of more than ``problem.FREE`` ops then keeps each of them together. Raises GraphError
    if nothing of the graph is on ``device``, or if its loops are too long to be written out.
    """
    require_graph(graph, "footprint")
    asked = stated(graph, graph.index.device(device), workspace=workspace)
    best = Incumbent(asked.problem)
    work = WORK if work_limit is None else work_limit
    limit = SearchLimit.given(time_limit_s, work_limit, otherwise_s=TIME_LIMIT_S)
    budget = Budget(work, limit.seconds_left, lambda: watch is None or watch(best.lower, best.upper))
    with contextlib.suppress(Exhausted):
        _search(best, budget)
    return _result(graph, asked, best, budget.stop, work, time_limit_s)


def sure_bounds(graph: Graph, *, device: str | None = None, workspace: bool = True) -> tuple[int, int]:
    """Bounds of the minimal footprint of ``graph`` without a search: its largest unavoidable set, and the peak of the
    captured order. The arguments are those of ``footprint``."""
    asked = stated(graph, graph.index.device(device), workspace=workspace)
    free, sizes = asked.problem, dict[int, int]()
    for block, nbytes in enumerate(free.nbytes):
        sizes[nbytes] = sizes.get(nbytes, 0) | 1 << block
    levels = (
        free.needs[op] - free.born[op] + sum(nbytes * (blocks & of).bit_count() for nbytes, of in sizes.items())
        for op, blocks in _unavoidable(free)
    )
    return free.base + max(levels, default=0), asked.ops.peak(range(len(asked.ops)))


def _result(
    graph: Graph, asked: Stated, best: Incumbent, stop: Stop, work: int, time_s: float | None
) -> MinimalFootprint:
    ops = asked.ops
    captured = list(range(len(ops)))
    order = min(asked.spelled(best.order), captured, key=ops.peak)
    levels = ops.levels(order)
    upper = max(levels, default=ops.base)
    at = levels.index(upper) if levels else -1
    peak_op = order[at] if levels else -1
    return MinimalFootprint(
        device=ops.device,
        loops="none" if not graph.loops else "together" if asked.is_contracted else "written out",
        lower_bytes=best.lower,
        upper_bytes=upper,
        captured_peak_bytes=ops.peak(captured),
        persistent_bytes=ops.base,
        footprint_bytes=ops.footprint,
        peak_op=peak_op,
        workspace_bytes=ops.needs[peak_op] - ops.born[peak_op] if levels else 0,
        residents=tuple(ops.resident_at(order, at)),
        certificate=_kind(asked.problem, best.proof),
        stop="proved" if best.lower == upper else "work" if stop == "proved" else stop,
        work=work,
        time_s=time_s,
        proof=best.proof,
        plan=in_order(asked.graph, order, ops.device),
    )


def _search(best: Incumbent, budget: Budget) -> None:
    """Close the gap of ``best`` as far as ``budget`` goes: the cheap ways first."""
    count = len(best.problem)
    studied(best, Case(best.lower, best.proof), budget, anew=False)
    for states in (5_000, 50_000) if count <= _SMALL else (5_000,):
        for forward in (True, False):
            if not best.proved and states * count <= _SETS:
                explore(best, budget, forward=forward, states=states)
    for layer in _STATES if count <= _SMALL else ():
        if not best.proved:
            bisect(best, budget, *layer)
    if not best.proved:
        solve(best, budget)


def _kind(asked: Problem, proof: Proof) -> str:
    """Name the kind of ``proof``."""
    if isinstance(proof, Cut):
        sure = sum(asked.nbytes[block] for block in sure_blocks(asked, proof.op)) - asked.born[proof.op]
        return "unavoidable set" if sure == sum(nbytes for _, _, nbytes in proof.storages) else "minimum cut"
    kinds = {Persistent: "persistent bytes", Either: "minimum cuts by cases", Searched: "exhaustive search"}
    return kinds[type(proof)]


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


def bounds_of(graph: Graph, *, device: str | None = None, workspace: bool = True, work: int = WORK) -> Bounds:
    """The bounds of the minimal footprint of ``graph``, storage by storage.

    ``lower`` are the unavoidable sets of all ops, ``upper`` what is resident under the order that ``footprint`` finds
    with ``work``.
    Raises PlanError for a graph with loops, GraphError if nothing of it is on ``device``.
    """
    if graph.loops:
        raise PlanError(f"bounds of a step with loops have no formula: write out {graph.loops[0].name!r} first")
    found = footprint(graph, device=device, workspace=workspace, work_limit=work)
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
