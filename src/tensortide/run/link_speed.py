"""Speed of the links of a live run: transfers of two sizes, or a sweep of many, timed while nothing else runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from tensortide.errors import RunError
from tensortide.run.block import Storage
from tensortide.run.device import device_of
from tensortide.run.host_memory import host_memory
from tensortide.run.movers import Mover
from tensortide.run.tiers import Tier
from tensortide.run.transfers import CopyEngine, Transfer
from tensortide.timing.links import Link
from tensortide.units import format_bytes

SMALL, LEAST, MOST = 4 << 10, 256 << 10, 64 << 20
"""Bytes of the smaller transfer, and the fewest and most of the larger one."""
TIMES = 5
"""Transfers of each size, of which the fastest counts."""
LEAST_REPEATS, MOVED = 5, 4 << 30
"""Of a sweep, repeats of the largest sizes, and the bytes of all repeats of one size above which there are fewer."""


class Sample(NamedTuple):
    """Transfers of ``nbytes`` over one direction of the link ``link`` (``out`` of the device, or ``in``): their times
    in ns, warm-up left out."""

    link: str
    way: str
    nbytes: int
    times_ns: tuple[int, ...]


def repeats_of(nbytes: int, repeats: int) -> int:
    """Transfers of ``nbytes`` in a sweep of ``repeats``: fewer of large sizes, ``LEAST_REPEATS`` at the least."""
    return min(repeats, max(LEAST_REPEATS, MOVED // nbytes))


def room_for_sweep(device: str = "cpu") -> int:
    """Bytes of the largest transfer that a sweep should try: a quarter of the memory that is free, of host and device
    (both ends of a transfer may be in the same memory). Raises RunError if there is no such device."""
    return min(host_memory()[0], device_of(device).memory()[0]) // 4


def swept_links(
    names: Iterable[str],
    sizes: Sequence[int],
    folder: Path,
    device: str = "cpu",
    *,
    repeats: int = 100,
    watch: Callable[[str], object] = lambda _: None,
) -> tuple[Sample, ...]:
    """Time transfers of all ``sizes`` (bytes, ascending) over both directions of the links ``names``.

    Host memory is pinned where ``device`` is a GPU. A time begins when the copy is queued and ends when the event after
    it has come. Raises RunError without memory, or space in ``folder``, for the largest size.
    """
    mover, most, samples = device_of(device).mover("serial"), max(sizes), []
    for name in names:
        try:
            tier, held = Tier(name, most, folder, mover), mover.new(most)
        except (MemoryError, OSError, RuntimeError) as error:
            if isinstance(error, RunError):
                raise
            raise RunError(f"there is no memory for transfers of {format_bytes(most)}: {error}") from error
        try:
            for engine, way in ((tier.out, "out"), (tier.into, "in")):
                _times_ns(engine, most, tier, mover, held, 1)  # pages are given at the first use
                for size in sizes:
                    watch(f"{name} {way}, {format_bytes(size)}")
                    times = _times_ns(engine, size, tier, mover, held, 1 + repeats_of(size, repeats))
                    samples.append(Sample(name, way, size, times[1:]))
        finally:
            tier.close()
    return tuple(samples)


def measured_links(names: Iterable[str], nbytes: int, folder: Path, device: str = "cpu") -> tuple[Link, ...]:
    """Time transfers over the links ``names``, the larger ones of about ``nbytes``: the rate is by what those take
    beyond the smaller ones, and the latency is the rest of the latter. Raises RunError without space in ``folder``."""
    mover, size = device_of(device).mover("serial"), min(max(nbytes, LEAST), MOST)
    return tuple([_measured(name, size, folder, mover) for name in names])


def _measured(name: str, nbytes: int, folder: Path, mover: Mover) -> Link:
    tier = Tier(name, nbytes, folder, mover)
    try:
        held = mover.new(nbytes)
        mover.out(tier.memory, 0, held, nbytes)()  # pages are given at the first use
        mover.into(tier.memory, 0, held, nbytes)()
        times = {
            (engine.name, size): min(_times_ns(engine, size, tier, mover, held, TIMES))
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


def _times_ns(
    engine: CopyEngine, nbytes: int, tier: Tier, mover: Mover, held: Storage, repeats: int
) -> tuple[int, ...]:
    """Nanoseconds of ``repeats`` transfers of ``nbytes``, one after the other."""
    inwards = engine is tier.into
    times = []
    for _ in range(repeats):
        action = (mover.into if inwards else mover.out)(tier.memory, 0, held, nbytes)
        transfer = Transfer(engine, tier.link, 0, (0, nbytes), (), held, action)
        engine.submit(transfer)
        transfer.wait()
        if transfer.error is not None:
            raise transfer.failure()
        times.append(transfer.ended_ns - transfer.began_ns)
    return tuple(times)
