"""Exact searches over the sets of ops done, from the start of the step or from its end: the lowest peak first, and for
steps of some hundred ops set by set of equal size.

Between two ops only the set of ops done matters, so an order is a path through down-sets, and its peak the highest
level on the way. A search that always goes on from the set reached with the lowest peak (Dijkstra's, with the maximum
in place of the sum) reaches the end by a best order; until then the peak it has come to is a lower bound. Safe moves
(``orders``) are made at once. Played backwards a step obeys the same rules, as they rest on submodularity alone, and
one of the two directions is often far easier: joins are easy from the end, forks from the start.

Runs of ops can be safe as one is: they start at a down-set D, stay within the limit, and end at a set E that holds no
more than D, each set between them holding more; and every op of a run that adds something, its first op included, must
precede all that come after it. Then E holds least of the down-sets between D and E: one without the first op is D; to
any other one the ops that it lacks before the next one that adds can be added at no cost, by submodularity, which makes
it a set of the run or E. Take any order that goes on from D within the limit, and move the run to the front: a later
set A becomes A | E, with held(A | E) <= held(A) + held(E) - held(A & E) <= held(A).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tensortide.plans.order.incumbent import Budget, Incumbent
from tensortide.plans.order.problem import Problem, mask
from tensortide.plans.order.proof import Exhausted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]
    Ints: TypeAlias = NDArray[np.int64]

_RUN = 16
"""Ops in a safe run that are tried."""


def explore(best: Incumbent, budget: Budget, *, forward: bool, states: int) -> None:
    """Improve the bound of ``best``, and its order if a better one is found, within ``states`` sets of ops.

    Raises budget.Exhausted if the budget is spent first.
    """
    search = _Search(best.problem, forward)
    try:
        order = search.run(best.lower, best.upper, budget, states)
    finally:
        best.bound(min(search.bound, best.upper), Exhausted(min(search.bound, best.upper), forward))
    if order is not None:
        best.offer(order)


class _Search:
    """Sets of ops are bit masks: ``gone`` holds the ops played so far, from either end."""

    def __init__(self, problem: Problem, forward: bool) -> None:
        self.problem = problem
        self.forward = forward
        self.bound = problem.base
        self._full = (1 << len(problem)) - 1
        before, self._opens = (problem.before, problem.after) if forward else (problem.after, problem.before)
        self._needs = [mask(ops) for ops in before]
        self._users = [mask(ops) for ops in problem.users]
        self._cost = 1 + len(problem) // 500

    def run(self, lower: int, upper: int, budget: Budget, states: int) -> list[int] | None:
        """An order with a peak below ``upper``, None if there is none or too many sets would have to be visited."""
        start = self.problem.start if self.forward else self.problem.end
        ready = [op for op, needs in enumerate(self._needs) if not needs]
        came: dict[int, tuple[int, list[int]]] = {}
        reached = {0: lower}
        heap = [(lower, 0, 0, start, ready, -1, -1)]
        while heap:
            self.bound, _, gone, held, ready, parent, op = heapq.heappop(heap)
            if reached[gone] < self.bound:
                continue
            budget.spend(self._cost * (5 + 3 * len(ready)))
            gone, held, ready, path = self._settle(gone, held, ready, op)
            if gone in came:
                continue
            came[gone] = parent, path
            if gone == self._full:
                return self._order(came, gone)
            if len(reached) > states:
                return None
            for following in ready:
                new, change, level = self._play(following, gone, held)
                peak = max(self.bound, level)
                if peak < upper and peak < reached.get(new, upper):
                    reached[new] = peak
                    heapq.heappush(heap, (peak, -new.bit_count(), new, held + change, ready, gone, following))
        self.bound = upper
        return None

    def _play(self, op: int, gone: int, held: int) -> tuple[int, int, int]:
        """Play ``op`` after ``gone``: the ops gone, the change of what is held, and the level while it runs."""
        new = gone | 1 << op
        done = new if self.forward else self._full & ~gone
        problem = self.problem
        net = problem.born[op]
        for block in problem.uses[op]:
            if not self._users[block] & ~done:
                net -= problem.nbytes[block]
        if self.forward:
            return new, net, held + problem.needs[op]
        return new, -net, held - net + problem.needs[op]

    def _settle(self, gone: int, held: int, ready: list[int], op: int) -> tuple[int, int, list[int], list[int]]:
        """Play ``op``, one of ``ready`` (-1: none), and all that is safe then: the new state, and what was played."""
        path = []
        if op >= 0:
            path = [op]
            ready = self._without(ready, op, gone)
        again = True
        while again:
            again = False
            for candidate in ready:
                run, level = self._descend(candidate, gone, held)
                for played in run:
                    gone |= 1 << played
                    ready = self._without(ready, played, gone)
                    again = True
                path += run
                held = level
        return gone, held, ready, path

    def _descend(self, op: int, gone: int, held: int) -> tuple[list[int], int]:
        """A safe run from ``op`` on, within the bound, after which no more is held than before.

        Returns the run and what is held after it; an empty run if none is found.
        """
        level, run, opened = held, list[int](), [op]
        while opened and len(run) < _RUN:
            change, peak, best = min(
                (change, peak, v) for v in opened for _, change, peak in [self._play(v, gone, level)]
            )
            if peak > self.bound:
                break
            gone |= 1 << best
            run.append(best)
            level += change
            if level <= held:
                return run, level
            opened = self._without(opened if change <= 0 else [], best, gone)
        return [], held

    def _without(self, ready: list[int], op: int, gone: int) -> list[int]:
        opened = [later for later in self._opens[op] if not self._needs[later] & ~gone]
        return [other for other in ready if other != op] + opened

    def _order(self, came: dict[int, tuple[int, list[int]]], gone: int) -> list[int]:
        parts = []
        while gone >= 0:
            gone, path = came[gone]
            parts.append(path)
        order = [op for path in reversed(parts) for op in path]
        return order if self.forward else order[::-1]


# -- set by set of equal size, on arrays -------------------------------------------------------------

_WORD = 64

_MIX = 0x9E3779B97F4A7C15
"""An odd number that spreads bits: sets are sorted by a hash, and compared in full. Where two sets have one hash, equal
sets may be kept twice, which costs time and nothing else."""


def bisect(best: Incumbent, budget: Budget, *states: int) -> None:
    """Close the gap of ``best``, order and bound, with so many sets of ops of a size: more if few do not answer.

    Whether an order stays within a limit is decided by all sets of one op, then of two, and so on, as far as they can
    be reached within it; of a set with a safe move (``orders``) only that is followed. If there come to be more than
    can be kept, those that hold least are: an order may still be found, but that none is proves nothing then. Bisection
    on the limit closes in on the smallest peak from both sides.

    Raises Exhausted if the budget is spent first.
    """
    ways = [_Layers(best.problem, forward) for forward in (True, False)]
    for unknown in ("above", "below"):
        low, high = best.lower, best.upper
        while low < high:
            limit = (low + high) // 2
            answer = _ask(best, ways, limit, budget, states)
            if answer == "found" or (answer == "unknown" and unknown == "below"):
                high = min(limit, best.upper)
            else:
                low = limit + 1


def _ask(best: Incumbent, ways: list[_Layers], limit: int, budget: Budget, states: tuple[int, ...]) -> str:
    """Search for an order with a peak of ``limit`` or less: ``found``, ``none`` if there is none, or ``unknown``."""
    for most, way in itertools.product(states, ways):
        order, complete = way.decide(limit, most, budget)
        if order is not None:
            best.offer(order)
            return "found"
        if complete:
            best.bound(limit + 1, Exhausted(limit + 1, way.forward))
            return "none"
    return "unknown"


class _Layer(NamedTuple):
    """Sets of ops of one size: bits by word and set, what they hold, and how they were reached."""

    gone: Words
    held: Ints
    parent: Ints
    op: Ints


class _Layers:
    """The search from one end; ``gone`` are the ops played so far, from there."""

    def __init__(self, problem: Problem, forward: bool) -> None:
        self.problem = problem
        self.forward = forward
        self._words = -(-len(problem) // _WORD)
        self._needs = [_bits(ops) for ops in (problem.before if forward else problem.after)]
        self._users = [_bits(ops) for ops in problem.users]
        self._stays = [touching[-1] == len(problem) for touching in problem.users]

    def decide(self, limit: int, states: int, budget: Budget) -> tuple[list[int] | None, bool]:
        """An order within ``limit``, None if none was found; and whether all sets were kept."""
        import numpy as np

        problem, complete = self.problem, True
        start = np.array([problem.start if self.forward else problem.end], np.int64)
        layer = _Layer(np.zeros((self._words, 1), np.uint64), start, start[:0], start[:0])
        layers = []
        for _ in range(len(problem)):
            budget.spend(20 * len(problem) + len(layer.held))
            layer = self._following(layer, limit)
            if len(layer.held) > states:
                complete = False
                kept = np.sort(np.argsort(layer.held, kind="stable")[:states])
                layer = _Layer(layer.gone[:, kept], layer.held[kept], layer.parent[kept], layer.op[kept])
            if not len(layer.held):
                return None, complete
            layers.append((layer.parent, layer.op))
        return self._order(layers), complete

    def _following(self, layer: _Layer, limit: int) -> _Layer:
        """The sets of one op more."""
        import numpy as np

        moves = [self._moves(op, layer, limit) for op in range(len(self.problem))]
        ops = np.repeat(np.arange(len(moves)), [len(parent) for parent, _ in moves])
        parent, change = (np.concatenate(column) for column in zip(*moves, strict=True))
        down = np.flatnonzero(change <= 0)
        safe = np.sort(down[np.unique(parent[down], return_index=True)[1]])  # the first safe move of each set
        settled = np.zeros(len(layer.held), bool)
        settled[parent[safe]] = True
        kept = np.concatenate([safe, np.flatnonzero(~settled[parent])])
        ops, parent, change = ops[kept], parent[kept], change[kept]
        held = layer.held[parent] + change
        gone = layer.gone[:, parent]
        gone[ops // _WORD, np.arange(len(ops))] |= np.uint64(1) << (ops % _WORD).astype(np.uint64)
        first = _distinct(gone)
        return _Layer(gone[:, first], held[first], parent[first], ops[first])

    def _moves(self, op: int, layer: _Layer, limit: int) -> tuple[Ints, Ints]:
        """The sets that ``op`` can follow within ``limit``, and how each then changes what is held."""
        import numpy as np

        problem, (word, bit) = self.problem, divmod(op, _WORD)
        parent = np.flatnonzero(_within(self._needs[op], layer.gone) & (layer.gone[word] >> np.uint64(bit) & 1 == 0))
        done = layer.gone[:, parent]
        if self.forward:
            done[word] |= np.uint64(1 << bit)
        else:
            done = ~done
        net = np.full(len(parent), problem.born[op], np.int64)
        for block in problem.uses[op]:
            if not self._stays[block]:
                net -= np.where(_within(self._users[block], done), problem.nbytes[block], 0)
        level = layer.held[parent] + problem.needs[op] - (0 if self.forward else net)
        fits = level <= limit
        return parent[fits], (net if self.forward else -net)[fits]

    def _order(self, layers: list[tuple[Ints, Ints]]) -> list[int]:
        at, order = 0, []
        for parent, op in reversed(layers):
            order.append(int(op[at]))
            at = int(parent[at])
        return order[::-1] if self.forward else order


def _bits(ops: Iterable[int]) -> list[tuple[int, int]]:
    """A set of ops as ``(word, bits)`` of the words that are not 0."""
    words: dict[int, int] = {}
    for op in ops:
        words[op // _WORD] = words.get(op // _WORD, 0) | 1 << op % _WORD
    return sorted(words.items())


def _within(bits: list[tuple[int, int]], sets: Words) -> NDArray[np.bool_]:
    """Return a mask of the ``sets`` that contain all of ``bits``."""
    import numpy as np

    found = np.ones(sets.shape[1], bool)
    for word, wanted in bits:
        found &= sets[word] & np.uint64(wanted) == np.uint64(wanted)
    return found


def _distinct(sets: Words) -> Ints:
    """Indexes of the first of every group of equal sets, ascending."""
    import numpy as np

    key = sets[0]
    for word in sets[1:]:
        key = (key ^ key >> np.uint64(29)) * np.uint64(_MIX) + word
    order = np.argsort(key)
    ranked = sets[:, order]
    new = np.ones(len(order), bool)
    new[1:] = (ranked[:, 1:] != ranked[:, :-1]).any(axis=0)
    return np.sort(np.minimum.reduceat(order, np.flatnonzero(new))) if len(order) else order
