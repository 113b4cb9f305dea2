"""Choices of idle intervals to move in a sequence of ops: from plans or moves that are known, covered, and improved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tensortide.compiled import IS_COMPILED
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Fetch, Step
from tensortide.plans.transfers.kernels.arrays import HERE, Tokens, homes_of, links_of, told
from tensortide.plans.transfers.kernels.choices import BEST, allowed_over, cover, searched
from tensortide.plans.transfers.kernels.greedy import begin, hidden, tokens
from tensortide.plans.transfers.kernels.idles import Idles, idles
from tensortide.plans.transfers.kernels.ledger import LINK, Ledger, ledger
from tensortide.plans.transfers.kernels.placed import placed, waits
from tensortide.plans.transfers.kernels.placing import NEVER, Line, line
from tensortide.plans.under_budget.sequence import Token
from tensortide.plans.under_budget.tables import Floats, Ints, tables
from tensortide.plans.under_budget.touches import touches_of
from tensortide.search_limit import Look

PRICES = (1.0, 4.0)
"""Times the copies to a tier are counted in what covers a peak: those that cost most before the peak leave no time to
others, whereas what has its home on the tier and is not written is only fetched twice."""
OPS_PER_HIDDEN = 8
"""Choosing what stalls no op takes about as long as playing the sequence so many times."""
PHASES = 20
"""How often a search returns what it has found."""
_HEAT = 0.0003
"""Part of the time of the ops by which a choice may get slower, at first."""
_SEED = 20
_CHUNK, _HIDDEN = (64, 4096) if IS_COMPILED else (1, 32)
"""Steps between two looks at the limit: of a search, and of choosing what stalls nothing."""


class Made(NamedTuple):
    """A plan made of a choice. ``time_ns``: what it takes; ``short_bytes``: what it lacks, 0 if it fits."""

    tokens: Tokens
    time_ns: int
    short_bytes: int


class Hidden(NamedTuple):
    """Moves that stall no op: their choice and its plan, and the bytes that are away at each place meanwhile."""

    choice: Ints
    made: Made
    away: Ints


class Setting:
    """An instance and its links as arrays. ``look`` is called now and then, and may raise to end a search; ``spend`` is
    told how many ops could be played in the time."""

    def __init__(self, instance: Instance, look: Look, spend: Callable[[int], None]) -> None:
        self.instance, self.t, self.links = instance, tables(instance), links_of(instance)
        self.look, self.spend = look, spend
        self.numbers = {link.name: number for number, link in enumerate(instance.links)}
        self.home = np.full(len(instance.storages), HERE, np.int64)
        for s, place in instance.home.items():
            if not instance.storages[s].persistent:
                self.home[s] = self.numbers.get(place, HERE)

    def told(self, made: Made) -> list[Token]:
        """The tokens of ``made``."""
        return told(self.instance, made.tokens)

    def homes(self, made: Made) -> dict[int, str]:
        """The tiers that are the home of a storage in ``made``."""
        return homes_of(self.instance, made.tokens)


class Choosing:
    """Choices for one ``sequence`` within ``budget_bytes``: arrays with a link, or ``HERE``, per idle interval."""

    def __init__(self, setting: Setting, sequence: Ints, budget_bytes: int) -> None:
        self.setting, self.budget = setting, budget_bytes
        self.v = Idles(*idles(setting.links, touches_of(setting.t, sequence)))
        self.x = Line(*line(setting.t, self.v, sequence))
        self.least_ns = int(setting.t.ns[sequence].sum())
        self.of_storage: dict[int, list[int]] = {}
        for i, s in enumerate(self.v.storage.tolist()):
            self.of_storage.setdefault(s, []).append(i)

    def nothing(self) -> Ints:
        """The choice in which nothing moves."""
        return np.full(len(self.v.storage), HERE, np.int64)

    def everything(self, link: str) -> Ints:
        """The choice of all that may move over a link, homes on its tier before all else."""
        choice = self.nothing()
        for i in np.argsort(-self.v.wraps, kind="stable").tolist():
            self.choose(choice, i, link)
        return choice

    def hidden(self, noise: Floats) -> Hidden:
        """Choose moves that take bytes off what exceeds the budget and stall no op. ``noise``: a factor by which
        storages rank higher."""
        d, t, links, v = self.setting, self.setting.t, self.setting.links, self.v
        d.spend(OPS_PER_HIDDEN * len(self.x.sequence))
        r = Ledger(*ledger(t, links, v, self.x.sequence, self.budget))
        weight, score = noise[v.storage], np.zeros(len(v.storage))
        begin(t, links, v, r, weight, score)
        while hidden(t, links, v, r, weight, score, _HIDDEN):
            d.look()
        short = int(np.maximum(r.excess, 0).sum())
        made = Made(Tokens(*tokens(v, r, self.x.sequence, d.home)), NEVER if short else self.least_ns, short)
        return Hidden(r.chosen[:, LINK].copy(), made, v.level - self.budget - r.excess)

    def waits(self, choice: Ints) -> Ints:
        """The nanoseconds that each op of the plan of a choice waits, and those that transfers go on after the last."""
        d = self.setting
        d.spend(len(self.x.sequence))
        found: Ints = waits(d.t, d.links, self.v, self.x, choice, self.budget)
        return found

    def choose(self, choice: Ints, i: int, link: str) -> None:
        """Have interval ``i`` move over a link if it may, or else over the first link there is."""
        allowed_over(self.v, choice, i, self.setting.numbers.get(link, 0), len(self.x.sequence))

    def of_steps(self, steps: Iterable[Step], home: Mapping[int, str]) -> Ints:
        """The choice that moves what the steps of a plan with the same sequence move."""
        choice, place = self.nothing(), 0
        for s, link in home.items():
            for i in self.of_storage.get(s, ()) if link in self.setting.numbers else ():
                if self.v.wraps[i]:
                    self.choose(choice, i, link)
        for step in steps:
            place += isinstance(step, Compute)
            if not isinstance(step, Fetch):
                continue
            for i in self.of_storage.get(step.storage, ()):
                if not self.v.wraps[i] and self.v.before[i] < place <= self.v.after[i]:
                    self.choose(choice, i, step.link)
        return choice

    def away(self, choice: Ints) -> Ints:
        """Bytes that a choice takes off the device at each place."""
        v, count = self.v, len(self.x.sequence)
        change, nbytes = np.zeros(count + 2, np.int64), self.setting.t.nbytes[v.storage]
        moved, wraps = choice != HERE, v.wraps.astype(np.bool_)
        np.add.at(change, v.before[moved] + 1, nbytes[moved])
        np.add.at(change, v.after[moved], -nbytes[moved])
        change[0] += nbytes[moved & wraps & (v.after <= v.before)].sum()
        return np.cumsum(change)[:count]

    def carried(self, other: Choosing, choice: Ints) -> Ints:
        """The ``choice`` for another sequence with the same first runs: an interval moves over the link of the one of
        which it is a part, or that is a part of it."""
        carried, mine, theirs = self.nothing(), self._progress(), other._progress()
        for k in np.flatnonzero(choice != HERE).tolist():
            link = self.setting.instance.links[choice[k]].name
            begin, end = theirs[other.v.before[k] + 1], theirs[other.v.after[k] + 1]
            for i in self.of_storage.get(int(other.v.storage[k]), ()):
                first, last = mine[self.v.before[i] + 1], mine[self.v.after[i] + 1]
                inside = (begin <= first and last <= end) or (first <= begin and end <= last)
                if self.v.wraps[i] == other.v.wraps[k] and (inside or self.v.wraps[i]):
                    self.choose(carried, i, link)
        return carried

    def _progress(self) -> Ints:
        """Ops that have run for the first time, before the step, with each place, and at its end."""
        first = np.zeros(len(self.x.sequence) + 2, np.int64)
        first[np.unique(self.x.sequence, return_index=True)[1] + 1] = 1
        first[-1] = 1
        return np.cumsum(first)

    def covered(self, choice: Ints, price: float) -> Ints:
        """The choice with so many more intervals that all fits, as far as there are any; copies to a tier count
        ``price`` times."""
        more, d = choice.copy(), self.setting
        d.spend(len(self.x.sequence))
        cover(d.t, d.links, self.v, self.x, more, self.budget, price)
        return more

    def made(self, choice: Ints) -> Made:
        """The plan of a choice."""
        d = self.setting
        d.spend(len(self.x.sequence))
        time_ns, short, found = placed(d.t, d.links, self.v, self.x, choice, self.budget, d.home)
        return Made(Tokens(*found), int(time_ns), int(short))

    def improved(self, choice: Ints, steps: int) -> Iterator[Ints]:
        """Change a choice in so many steps; yield each that is the fastest so far, now and then."""
        d, now, best = self.setting, choice.copy(), choice.copy()
        times, dice = np.array([NEVER, NEVER, 0], np.int64), np.array([_SEED], np.int64)
        known, done, phase = NEVER, 0, max(1, steps // PHASES)
        while done < steps and times[BEST] > self.least_ns:
            heat = _HEAT * self.least_ns * (1 - done / steps)
            size = min(_CHUNK, steps - done)
            searched(d.t, d.links, self.v, self.x, self.budget, now, best, times, dice, size, heat, self.least_ns)
            d.spend(size * len(self.x.sequence))
            is_late = done // phase != (done + size) // phase or done + size >= steps
            done += size
            if times[BEST] < known and (is_late or known == NEVER or times[BEST] == self.least_ns):
                known = int(times[BEST])
                yield best.copy()
            d.look()
