"""Choices of idle intervals to move in a sequence of ops: from plans or moves that are known, covered, and improved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tensortide.compiled import IS_COMPILED
from tensortide.plans.model import Compute, Fetch, Step
from tensortide.plans.transfers.decoder import NO_AXIS, Decoder, Made
from tensortide.plans.transfers.kernels.arrays import HERE, Tokens
from tensortide.plans.transfers.kernels.choices import BEST, allowed_over, cover, searched
from tensortide.plans.transfers.kernels.idles import Idles, idles
from tensortide.plans.transfers.kernels.placed import placed
from tensortide.plans.transfers.kernels.placing import NEVER, Line, line
from tensortide.plans.under_budget.tables import Ints

PRICES = (1.0, 4.0)
"""Times the copies to a tier are counted in what covers a peak: those that cost most before the peak leave no time to
others, whereas what has its home on the tier and is not written is only fetched twice."""
PHASES = 20
"""How often a search returns what it has found."""
_HEAT = 0.0003
"""Part of the time of the ops by which a choice may get slower, at first."""
_SEED = 20
_CHUNK = 64 if IS_COMPILED else 1
"""Steps between two looks at the limit."""


class Choosing:
    """Choices for one ``sequence`` within ``budget_bytes``: arrays with a link, or ``HERE``, per idle interval."""

    def __init__(self, decoder: Decoder, sequence: Ints, budget_bytes: int) -> None:
        self.decoder, self.budget = decoder, budget_bytes
        self.v = Idles(*idles(decoder.t, decoder.links, sequence))
        self.x = Line(*line(decoder.t, self.v, sequence))
        self.numbers = {link.name: number for number, link in enumerate(decoder.instance.links)}
        self.least_ns = int(decoder.t.ns[sequence].sum())
        self.of_storage: dict[int, list[int]] = {}
        for i, s in enumerate(self.v.storage.tolist()):
            self.of_storage.setdefault(s, []).append(i)

    def nothing(self) -> Ints:
        """The choice in which nothing moves."""
        return np.full(len(self.v.storage), HERE, np.int64)

    def hidden(self) -> Ints:
        """The choice of all that an engine can move without stalling an op."""
        made = self.decoder.decode(self.x.sequence, self.budget, waits=False)
        return self.of_steps(self.decoder.told(made), self.decoder.homes(made))

    def choose(self, choice: Ints, i: int, link: str) -> None:
        """Have interval ``i`` move over a link if it may, or else over the first link there is."""
        allowed_over(self.v, choice, i, self.numbers.get(link, 0), len(self.x.sequence))

    def of_steps(self, steps: Iterable[Step], home: Mapping[int, str]) -> Ints:
        """The choice that moves what the steps of a plan with the same sequence move."""
        choice, place = self.nothing(), 0
        for s, link in home.items():
            for i in self.of_storage.get(s, ()) if link in self.numbers else ():
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
        change, nbytes = np.zeros(count + 2, np.int64), self.decoder.t.nbytes[v.storage]
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
            link = self.decoder.instance.links[choice[k]].name
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
        more = choice.copy()
        self.decoder.spend(len(self.x.sequence))
        cover(self.decoder.t, self.decoder.links, self.v, self.x, more, self.budget, price)
        return more

    def made(self, choice: Ints) -> Made:
        """The plan of a choice."""
        d = self.decoder
        d.spend(len(self.x.sequence))
        time_ns, short, found = placed(d.t, d.links, self.v, self.x, choice, self.budget, d.home)
        return Made(Tokens(*found), int(time_ns), self.least_ns, int(short), NO_AXIS, NO_AXIS)

    def improved(self, choice: Ints, steps: int) -> Iterator[Ints]:
        """Change a choice in so many steps; yield each that is the fastest so far, now and then."""
        d, now, best = self.decoder, choice.copy(), choice.copy()
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
