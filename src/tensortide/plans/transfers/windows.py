"""A lower bound on the time of plans that recompute and move, from what must be away at several moments at once.

*Moments* are starts of first runs, in recorded order, 1 to K; 0 and K + 1 are the start and the end of the step.
Between moments c and c + 1 pass the ops of the recorded step, and E(c) more: recomputation and stalls. At a moment
enough bytes are away of the idle intervals that cover it. What is away then is restored before its next use: either
the op that wrote it last runs again until then, or it is fetched, and its copy was made between that op and the moment.
So

    sum of bytes(i) (r(i, j) + sum of o(i, j, l)) >= excess(j)
    sum of out_ns(i, l) o(i, j, l), of those written by op w or later          <= time from the end of w to j
    sum of back_ns(i, l) o(i, j, l), of those whose next use is at op u or before <= time from j to the start of u
    sum of share_ns(i) r(i, j), of those whose next use is at op u or before      <= E from j to u
    sum of share_ns(i) y(i) <= all E,   r(i, j) <= y(i)

where the time from one op to another is that of the recorded step, and the E(c) of all stretches that it touches.
The least sum of E is the bound. Any weights >= 0 of these rows prove one (``verify_windows``), in integers and without
a solver; those of the dual of the linear program prove the best.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.linear_program import solved
from tensortide.plans.under_budget.idle import IdleIntervals, idle_intervals
from tensortide.plans.under_budget.tables import tables
from tensortide.search_limit import Look, SearchLimit, no_look

MOMENTS = 12
"""Moments that are looked at, at most."""
SCALE = 1 << 30
"""Weights are integers: nanoseconds of the step per unit of a row, times this."""
THRESHOLDS = 8
"""Writers, and next uses, that are told apart at a moment, at most."""
Row = tuple[str, int, int, int]
"""``need`` at a moment j; ``out`` over link l since op w (-1: the start); ``back`` until op u (as many as there are:
the end); ``again`` until u; ``once``: (kind, j, l, w or u), 0 where a number has no meaning."""


class Windows(msgspec.Struct, frozen=True, tag="windows"):
    """Weights of rows, for plans within ``budget_bytes`` that add ``most_ns`` at most; ``moments`` by op."""

    budget_bytes: int
    most_ns: int
    moments: tuple[int, ...]
    weights: tuple[tuple[Row, int], ...]


class _Away(NamedTuple):
    """Idle interval number ``interval``, away at moment ``j``; written by op ``state``, next used at op ``end``.

    ``share``: the part of the time of its writer that restores it; None: the writer cannot run again. ``moves``: for
    each link the time of the copy and of the fetch, 0 where none is needed.
    """

    interval: int
    j: int
    nbytes: int
    state: int
    end: int
    share: Fraction | None
    moves: tuple[tuple[int, int], ...]


class _Rows:
    """The rows of an instance at some moments. ``pairs``: intervals and moments that they cover."""

    def __init__(
        self,
        instance: Instance,
        found: IdleIntervals,
        budget_bytes: int,
        moments: tuple[int, ...],
        look: Look = no_look,
    ) -> None:
        self.instance, self.found, self.moments = instance, found, moments
        self.count = len(moments)
        self.starts = list(accumulate((op.ns for op in instance.ops), initial=0))
        self.excess = [0, *(int(found.need[op]) - budget_bytes for op in moments)]
        self.pairs: list[_Away] = []
        for j in range(1, self.count + 1):
            look()
            self.pairs += self._covering(j)

    def limit(self, row: Row) -> int:
        """The right side of a row without E, as "at most"."""
        kind, j, _, op = row
        if kind == "need":
            return -self.excess[j]
        if kind in ("again", "once"):
            return 0
        at = self.starts[self.moments[j - 1]]
        return at - self.starts[op + 1] if kind == "out" else self.starts[op] - at

    def cells(self, row: Row) -> range:
        """The numbers c of the E(c) on the right side of a row."""
        kind, j, _, op = row
        if kind == "need":
            return range(0)
        if kind == "once":
            return range(self.count + 1)
        return (
            range(bisect_right(self.moments, op), j) if kind == "out" else range(j, bisect_left(self.moments, op) + 1)
        )

    def _covering(self, j: int) -> list[_Away]:
        op, instance, found = self.moments[j - 1], self.instance, self.found
        covering = []
        for g in np.flatnonzero((found.begin <= op) & (op < found.end)).tolist():
            s, state, end = int(found.storage[g]), int(found.state[g]), int(found.end[g])
            storage = instance.storages[s]
            if storage.pinned or not storage.nbytes:
                continue
            writer = None if state == BEFORE or instance.ops[state].once else instance.ops[state]
            share = None
            if writer is not None:
                among = sum(instance.storages[x].nbytes for x in {*writer.makes, *writer.writes})
                share = Fraction(writer.ns * storage.nbytes, among)
            covering.append(_Away(g, j, storage.nbytes, state, end, share, self._moves(s, state, end)))
        return covering

    def _moves(self, s: int, state: int, end: int) -> tuple[tuple[int, int], ...]:
        storage, instance = self.instance.storages[s], self.instance
        elsewhere = storage.persistent or s in instance.home
        no_out, no_back = elsewhere and state == BEFORE, elsewhere and end >= len(instance.ops)
        return tuple(
            (
                0 if no_out else link.transfer_ns(storage.nbytes),
                0 if no_back else link.transfer_ns(storage.nbytes, inwards=True),
            )
            for link in instance.links
        )


def windows(
    instance: Instance,
    budget_bytes: int,
    most_ns: int,
    limit: SearchLimit | None = None,
    look: Look = no_look,
) -> tuple[int, Windows | None]:
    """The best bound that these rows prove, at most ``most_ns`` over the time of every op once, and its proof; None if
    it is no better, if the solver does not find it within ``limit``, or if SciPy is not installed.

    An iteration of the solver spends the number of ops of ``limit``. ``look`` is called meanwhile; it may raise.
    """
    found = idle_intervals(instance, tables(instance))
    moments = _moments(instance, found, budget_bytes)
    if not moments or most_ns <= 0:
        return instance.base_ns, None
    weights = _dual(_Rows(instance, found, budget_bytes, moments, look), most_ns, limit or SearchLimit(), look)
    proof = Windows(budget_bytes, most_ns, moments, weights)
    bound = verify_windows(instance, proof, look)
    return (bound, proof) if bound > instance.base_ns else (instance.base_ns, None)


def verify_windows(instance: Instance, proof: Windows, look: Look = no_look) -> int:
    """The time that no plan undercuts whose first runs are in recorded order, whatever it recomputes or moves."""
    rows = _Rows(instance, idle_intervals(instance, tables(instance)), proof.budget_bytes, proof.moments, look)
    weights = {row: max(0, weight) for row, weight in proof.weights}
    left = [SCALE] * (rows.count + 1)
    total = 0
    for row, weight in weights.items():
        total -= weight * rows.limit(row)
        for c in rows.cells(row):
            left[c] -= weight
    value = Fraction(total + min(0, *left) * proof.most_ns)
    once = weights.get(("once", 0, 0, 0), 0)
    lost: dict[int, list[Fraction]] = defaultdict(lambda: [Fraction(), Fraction()])
    share: dict[int, Fraction] = {}
    sums = _Sums(weights)
    for pair in rows.pairs:
        look()
        gain = weights.get(("need", pair.j, 0, 0), 0) * pair.nbytes
        costs = [
            out * sums.until("out", pair.j, link, pair.state) + back * sums.since("back", pair.j, link, pair.end)
            for link, (out, back) in enumerate(pair.moves)
        ]
        moved = max(0, gain - min(costs)) if costs else 0
        lost[pair.interval][0] += moved
        restored = Fraction(moved)
        if pair.share is not None:
            share[pair.interval] = pair.share
            restored = max(restored, gain - pair.share * sums.since("again", pair.j, 0, pair.end))
        lost[pair.interval][1] += restored
    for interval, (moved_only, any_way) in lost.items():
        value -= max(moved_only, any_way - once * share[interval]) if interval in share else moved_only
    return instance.base_ns + min(proof.most_ns, max(0, -(-value // SCALE)))


class _Sums:
    """Sums of weights of rows of a kind, a moment and a link."""

    def __init__(self, weights: Mapping[Row, int]) -> None:
        grouped: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
        for (kind, j, link, op), weight in sorted(weights.items()):
            grouped[kind, j, link].append((op, weight))
        self.ops = {key: [op for op, _ in rows] for key, rows in grouped.items()}
        self.sums = {key: [*accumulate((x for _, x in rows), initial=0)] for key, rows in grouped.items()}

    def until(self, kind: str, j: int, link: int, op: int) -> int:
        """The weights of the rows up to ``op``."""
        key = kind, j, link
        return self.sums[key][bisect_right(self.ops[key], op)] if key in self.ops else 0

    def since(self, kind: str, j: int, link: int, op: int) -> int:
        """The weights of the rows from ``op`` on."""
        key = kind, j, link
        return self.sums[key][-1] - self.sums[key][bisect_left(self.ops[key], op)] if key in self.ops else 0


def _moments(instance: Instance, found: IdleIntervals, budget_bytes: int) -> tuple[int, ...]:
    """Of stretches of equal time between the first op that exceeds the budget and the last, the op that does by most;
    at most ``MOMENTS``."""
    over = found.need - budget_bytes
    inside = np.flatnonzero(over > 0)
    if not len(inside):
        return ()
    starts = np.cumsum([op.ns for op in instance.ops])
    first, last = starts[inside[0]], starts[inside[-1]]
    part = np.minimum((starts[inside] - first) * MOMENTS // max(1, last - first), MOMENTS - 1)
    chosen = {int(inside[part == k][over[inside[part == k]].argmax()]) for k in np.unique(part).tolist()}
    return tuple(sorted(chosen))


class _Program(NamedTuple):
    """The linear program: E in parts of the most, then ``r``, ``o`` and ``y``. ``rows`` without names: of each pair."""

    rows: list[Row]
    limits: list[float]
    entries: list[tuple[int, int, float]]
    columns: int


def _program(rows: _Rows, most_ns: int, unit: float, look: Look) -> _Program:
    cells, links = rows.count + 1, len(rows.instance.links)
    names: list[Row] = [("need", j, 0, 0) for j in range(1, cells)]
    writers = {j: _spread(p.state for p in rows.pairs if p.j == j) for j in range(1, cells)}
    uses = {j: _spread(-p.end for p in rows.pairs if p.j == j) for j in range(1, cells)}
    for j in range(1, cells):
        for link in range(links):
            names += [("out", j, link, w) for w in writers[j]]
            names += [("back", j, link, -u) for u in uses[j]]
        names += [("again", j, 0, -u) for u in uses[j]]
    names.append(("once", 0, 0, 0))
    number = {name: n for n, name in enumerate(names)}
    limits = [rows.limit(name) / (unit if name[0] == "need" else most_ns) for name in names]
    entries = [(n, c, -1.0) for n, name in enumerate(names) for c in rows.cells(name)]
    column, served = cells, {}
    for pair in rows.pairs:
        look()
        one = len(limits)
        limits.append(1.0)
        ways = []
        for link, (out, back) in enumerate(pair.moves):
            entries += [
                (number["out", pair.j, link, w], column, out / most_ns) for w in writers[pair.j] if w <= pair.state
            ]
            entries += [
                (number["back", pair.j, link, -u], column, back / most_ns) for u in uses[pair.j] if -u >= pair.end
            ]
            ways.append(column)
            column += 1
        if pair.share is not None:
            part = float(pair.share) / most_ns
            entries += [(number["again", pair.j, 0, -u], column, part) for u in uses[pair.j] if -u >= pair.end]
            if pair.interval not in served:
                served[pair.interval] = column + 1
                entries.append((number["once", 0, 0, 0], column + 1, part))
            entries += [(len(limits), column, 1.0), (len(limits), served[pair.interval], -1.0)]
            limits.append(0.0)
            ways.append(column)
            column += 1 + (served[pair.interval] == column + 1)
        entries += [(number["need", pair.j, 0, 0], way, -pair.nbytes / unit) for way in ways]
        entries += [(one, way, 1.0) for way in ways]
    return _Program(names, limits, entries, column)


def _spread(numbers: Iterable[int]) -> list[int]:
    """At most ``THRESHOLDS`` of the numbers, evenly spread, the least one among them."""
    found = sorted(set(numbers))
    step = max(1, -(-len(found) // THRESHOLDS))
    return found[::step]


def _dual(rows: _Rows, most_ns: int, limit: SearchLimit, look: Look) -> tuple[tuple[Row, int], ...]:
    """Weights from the dual of the linear program; none where SciPy is not installed, or fails."""
    try:
        from scipy.sparse import coo_array
    except ImportError:
        return ()
    unit = float(max(1, *(pair.nbytes for pair in rows.pairs))) if rows.pairs else 1.0
    made = _program(rows, most_ns, unit, look)
    row, column, value = zip(*made.entries, strict=True)
    matrix: Any = coo_array((value, (row, column)), shape=(len(made.limits), made.columns)).tocsr()
    cost = np.zeros(made.columns)
    cost[: rows.count + 1] = 1.0
    ops = len(rows.instance.ops)
    optimum = solved(cost, limit=limit, iteration=ops, look=look, A_ub=matrix, b_ub=made.limits, bounds=(0, 1))
    if optimum is None:
        return ()
    weights = []
    for name, marginal in zip(made.rows, (-optimum.ineqlin.marginals).tolist(), strict=False):
        weight = int(max(0.0, marginal) * SCALE * (most_ns / unit if name[0] == "need" else 1.0))
        if weight:
            weights.append((name, weight))
    return tuple(weights)
