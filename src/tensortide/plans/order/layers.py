"""Exact search over the sets of ops done for steps of some hundred ops, set by set of equal size, on arrays.

Whether an order stays within a limit is decided by all sets of one op, then of two, and so on, as far as they can be
reached within it; of a set with a safe move (``orders``) only that is followed. If there come to be more than can be
kept, those that hold least are: an order may still be found, but that none is proves nothing then. As in ``search``
the step can be played from its end too. Bisection on the limit closes in on the smallest peak from both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tensortide.plans.order.incumbent import Budget, Incumbent
from tensortide.plans.order.problem import Problem
from tensortide.plans.order.proof import Exhausted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]
    Ints: TypeAlias = NDArray[np.int64]

_WORD = 64

_MIX = 0x9E3779B97F4A7C15
"""An odd number that spreads bits: sets are sorted by a hash, and compared in full. Where two sets have one hash, equal
sets may be kept twice, which costs time and nothing else."""


def bisect(best: Incumbent, budget: Budget, *states: int) -> None:
    """Close the gap of ``best``, order and bound, with so many sets of ops of a size: more if few do not answer.

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
    for word, mask in bits:
        found &= sets[word] & np.uint64(mask) == np.uint64(mask)
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
