"""Sequences of ops decoded into plans: what moves, and when, so that they fit a budget; with the time that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tensortide.compiled import IS_COMPILED
from tensortide.plans.instance import Instance
from tensortide.plans.transfers.kernels.arrays import HERE, Tokens, homes_of, links_of, told
from tensortide.plans.transfers.kernels.greedy import begin, forced, hidden, prune, tokens
from tensortide.plans.transfers.kernels.idles import Idles, idles
from tensortide.plans.transfers.kernels.ledger import Ledger, ledger
from tensortide.plans.transfers.kernels.replayed import replayed
from tensortide.plans.transfers.residences import Token
from tensortide.plans.under_budget.tables import Floats, Ints, tables
from tensortide.search_limit import Look

NO_AXIS = np.zeros(0, np.int64)
_STEPS, _FORCED = (4096, 8) if IS_COMPILED else (32, 1)
"""Steps of choosing between two looks at the limit: of those that stall nothing, and of those that do."""
_BATCH = 64
"""Steps that stall something are allowed in multiples of so many."""
OPS_PER_DECODE = 8
"""Decoding a sequence takes about as long as playing it so many times."""


class Made(NamedTuple):
    """A plan made of a sequence. ``time_ns``: what it takes; ``least_ns``: its ops without a stall; ``axis``: the
    starts of its runs, and the end. ``short_bytes``: what it lacks, 0 if it fits. ``away``: bytes that have moved at
    each place."""

    tokens: Tokens
    time_ns: int
    least_ns: int
    short_bytes: int
    axis: Ints
    away: Ints


class Decoder:
    """Decodes sequences of one instance. ``look`` is called now and then, and may raise to end what is going on;
    ``spend`` is told how many ops could be played in the time."""

    def __init__(self, instance: Instance, look: Look, spend: Callable[[int], None]) -> None:
        self.instance, self.t, self.links = instance, tables(instance), links_of(instance)
        self.look, self.spend = look, spend
        self.home = np.full(len(instance.storages), HERE, np.int64)
        numbers = {link.name: number for number, link in enumerate(instance.links)}
        for s, place in instance.home.items():
            if not instance.storages[s].persistent:
                self.home[s] = numbers.get(place, HERE)

    def decode(
        self,
        sequence: Ints,
        budget_bytes: int,
        *,
        axis: Ints = NO_AXIS,
        noise: Floats | None = None,
        waits: bool = True,
    ) -> Made:
        """Make a plan of ``sequence``: what moves is chosen on the time ``axis``, each op after the one before where
        that is empty. ``noise``: a factor by which storages rank higher. ``waits``: ops may wait for transfers."""
        t, links = self.t, self.links
        self.spend(OPS_PER_DECODE * len(sequence))
        v = Idles(*idles(t, links, sequence))
        r = Ledger(*ledger(t, links, v, sequence, budget_bytes, axis))
        weight = np.ones(len(v.storage)) if noise is None else noise[v.storage]
        score = np.zeros(len(v.storage))
        begin(t, links, v, r, weight, score)
        while hidden(t, links, v, r, weight, score, _STEPS):
            self.look()
        for _ in range(((2 * len(v.storage) + 50) // _BATCH + 1) * _BATCH // _FORCED if waits else 0):
            if not forced(t, links, v, r, _FORCED):
                break
            self.look()
        prune(t, v, r)
        found = Tokens(*tokens(v, r, sequence, self.home))
        starts = np.zeros(len(sequence) + 1, np.int64)
        time_ns, short = replayed(t, links, found, budget_bytes, starts)
        away = v.level - budget_bytes - r.excess
        return Made(found, int(time_ns), int(t.ns[sequence].sum()), int(short), starts, away)

    def told(self, made: Made) -> list[Token]:
        """The tokens of ``made``."""
        return told(self.instance, made.tokens)

    def homes(self, made: Made) -> dict[int, str]:
        """The tiers that are the home of a storage in ``made``."""
        return homes_of(self.instance, made.tokens)
