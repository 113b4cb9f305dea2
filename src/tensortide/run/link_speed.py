"""Speed of the links of a live run: transfers of two sizes, timed while nothing else runs."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from tensortide.run.block import Storage
from tensortide.run.movers import Mover
from tensortide.run.tiers import Tier
from tensortide.run.transfers import CopyEngine, Transfer
from tensortide.timing.machine import Link

SMALL, LEAST, MOST = 4 << 10, 256 << 10, 64 << 20
"""Bytes of the smaller transfer, and the fewest and most of the larger one."""
TIMES = 5
"""Transfers of each size, of which the fastest counts."""


def measured_links(names: Iterable[str], nbytes: int, folder: Path) -> tuple[Link, ...]:
    """Time transfers over the links ``names``, the larger ones of about ``nbytes``: the rate is by what those take
    beyond the smaller ones, and the latency is the rest of the latter. Raises RunError without space in ``folder``."""
    return tuple([_measured(name, min(max(nbytes, LEAST), MOST), folder) for name in names])


def _measured(name: str, nbytes: int, folder: Path) -> Link:
    mover = Mover("serial")
    tier = Tier(name, nbytes, folder, mover)
    try:
        held = mover.new(nbytes)
        mover.out(tier.memory, 0, held, nbytes)()  # pages are given at the first use
        mover.into(tier.memory, 0, held, nbytes)()
        times = {
            (engine.name, size): _fastest_ns(engine, size, tier, mover, held)
            for engine in (tier.out, tier.into)
            for size in (SMALL, nbytes)
        }
    finally:
        tier.close()
    rates = []
    for engine in (tier.out, tier.into):
        longer = times[engine.name, nbytes] - times[engine.name, SMALL]
        rates.append(Fraction((nbytes - SMALL) * 10**9, max(1, longer)))
    ends = (times[tier.out.name, SMALL], times[tier.into.name, SMALL])
    latency = max(0, min(int(ns - SMALL * 10**9 / rate) for ns, rate in zip(ends, rates, strict=True)))
    return Link(name, rates[0], latency, "measured", rates[1])


def _fastest_ns(engine: CopyEngine, nbytes: int, tier: Tier, mover: Mover, held: Storage) -> int:
    inwards = engine is tier.into
    times = []
    for _ in range(TIMES):
        action = (mover.into if inwards else mover.out)(tier.memory, 0, held, nbytes)
        transfer = Transfer(engine, tier.link, 0, (0, nbytes), (), held, action)
        engine.submit(transfer)
        transfer.wait()
        if transfer.error is not None:
            raise transfer.failure()
        times.append(transfer.ended_ns - transfer.began_ns)
    return min(times)
