"""Ways to move an idle interval over a link: its transfers, what they free, and which ops wait for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.transfers.ledger import Ledger, Transfer
from tensortide.plans.transfers.residences import Idle

Range = tuple[int, int]


class Option(NamedTuple):
    """The idle interval number ``idle``, moved over ``link``.

    ``out``: the copy, None if the tier has these contents already; ``back``: the fetch, None if nothing needs it.
    ``away``: ranges of places during which it is away. ``held``: places between which the tier holds it. ``wait_at``:
    the op that waits until it is released, -1 if none does; ``stall_ns``: how much longer the step takes for it.
    """

    idle: int
    link: str
    out: Transfer | None
    back: Transfer | None
    away: tuple[Range, ...]
    held: Range
    wait_at: int = -1
    stall_ns: int = 0

    def covers(self, place: int) -> bool:
        """Tell whether the storage is away at ``place``."""
        return any(first <= place < last for first, last in self.away)

    @property
    def busy_ns(self) -> int:
        """Time of copy engines."""
        return sum(x.time_ns for x in (self.out, self.back) if x is not None)


class Options:
    """Makes options, given the ledger, the ``homes`` chosen so far, and the ``copies`` that tiers get."""

    def __init__(self, instance: Instance, idle: tuple[Idle, ...], ledger: Ledger) -> None:
        self.instance, self.idle, self.ledger = instance, idle, ledger
        self.links = {link.name: link for link in instance.links}
        self.size = [instance.storages[x.storage].nbytes for x in idle]
        self.homes: dict[int, str] = {}
        self.copies: dict[tuple[int, int, str], list[Transfer]] = {}
        self.edges: Counter[int] = Counter()
        """Idle intervals chosen at the start or the end of the step, by storage: it is at home on the device then."""

        self.moved: dict[int, Counter[str]] = {}
        """How many idle intervals of a storage move over which link: a storage takes one, so that copies serve all."""

    def is_edge(self, idle: Idle) -> bool:
        """Tell whether an idle interval begins or ends with the step."""
        return not idle.wraps and (idle.before < 0 or idle.after >= self.ledger.count)

    def of(self, number: int, at: int | None = None) -> Iterator[Option]:
        """Yield the options, one per link, that stall nothing; or those by which the storage is away at ``at``."""
        taken = self.moved.get(self.idle[number].storage, ())
        for link in self.links:
            if any(count and other != link for other, count in dict(taken).items()):
                continue
            option = self._around(number, link, at) if self.idle[number].wraps else self._between(number, link, at)
            if option is not None and option.away and (at is None or option.covers(at)):
                yield option

    def _between(self, number: int, link: str, at: int | None) -> Option | None:
        idle, ledger = self.idle[number], self.ledger
        home = self.homes.get(idle.storage)
        held = max(idle.since, 0), min(idle.after, ledger.count)
        if home is not None and self.is_edge(idle):
            return None
        clean = home == link and idle.state == BEFORE
        if not clean and not ledger.has_room(link, self.size[number], *held):
            return None
        out, free = self._out(number, link, at, clean=clean)
        wait = 0 if at is None else max(0, free - ledger.begin(at))
        since = free if at is None else max(free - wait, ledger.end(at))
        back, late = self._back(number, link, since, at is not None)
        if back is None:
            return None
        begin = max(ledger.place_from(free), idle.before + 1)
        until = min(ledger.place_until(back.start), idle.after)
        if at is not None:
            begin, until = min(begin, at), max(until, at + 1)
        away = ((begin, until),) if begin < until else ()
        return Option(
            number,
            link,
            out,
            back,
            away,
            (0, -1) if clean else held,
            at if wait and at is not None else -1,
            wait + late,
        )

    def _around(self, number: int, link: str, at: int | None) -> Option | None:
        idle, ledger, count = self.idle[number], self.ledger, self.ledger.count
        if (
            idle.storage in self.homes
            or self.edges[idle.storage]
            or not ledger.has_room(link, self.size[number], 0, count)
        ):
            return None
        if idle.after >= count:
            return Option(number, link, None, None, ((0, count),), (0, count))
        first = at is not None and at < idle.after
        out, free = self._out(number, link, None if first else at, clean=idle.state == BEFORE)
        wait = 0 if at is None or first else max(0, free - ledger.begin(at))
        back, late = self._back(number, link, ledger.end(at) if first and at is not None else 0, at is not None)
        tail = 0 if out is None else max(0, out.end - ledger.begin(count))
        if back is None or (tail and at is None):
            return None
        begin, until = max(ledger.place_from(free), idle.before + 1), min(ledger.place_until(back.start), idle.after)
        if at is not None:
            begin, until = (begin, max(until, at + 1)) if first else (min(begin, at), until)
        away = tuple(part for part in ((0, until), (begin, count)) if part[0] < part[1])
        return Option(
            number, link, out, back, away, (0, count), at if wait and at is not None else -1, wait + late + tail
        )

    def _out(self, number: int, link: str, at: int | None, *, clean: bool) -> tuple[Transfer | None, int]:
        """The copy to the tier, and when the storage is released; what starts with the op ``at`` gives way."""
        idle, ledger = self.idle[number], self.ledger
        done = ledger.end(idle.before)
        known = self.copies.get((idle.storage, idle.state, link), ())
        if clean or any(copy.end <= done for copy in known):
            return None, done
        engine, time_ns = ledger.out[link], self.links[link].transfer_ns(self.size[number])
        start = engine.latest(ledger.end(idle.since), done, time_ns)
        if start is None:
            start = engine.earliest(ledger.end(idle.since), time_ns, None if at is None else ledger.begin(at))
        return Transfer(start, time_ns), max(start + time_ns, done)

    def _back(self, number: int, link: str, since: int, forced: bool) -> tuple[Transfer | None, int]:
        """The fetch, as late as it may be, and how long the op that needs it waits for it."""
        engine = self.ledger.back[link]
        time_ns = self.links[link].transfer_ns(self.size[number], inwards=True)
        due = self.ledger.begin(self.idle[number].after)
        start = engine.latest(since, due, time_ns)
        if start is not None:
            return Transfer(start, time_ns), 0
        if not forced:
            return None, 0
        start = engine.earliest(since, time_ns, due)
        return Transfer(start, time_ns), max(0, start + time_ns - due)
