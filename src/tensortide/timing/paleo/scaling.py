"""Data-parallel training on many workers, as Paleo predicts it: every worker's step, then an exchange of the weights.

Exchanges have no latency, do not overlap with the backward pass, and count a gigabyte as 1e9 bytes where the memory of
a device counts 2^30.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from tensortide.errors import TensortideError
from tensortide.graph.collectives import doublings
from tensortide.timing.catalogue import Device
from tensortide.timing.links import Link
from tensortide.timing.paleo.nets import Net
from tensortide.timing.paleo.parts import BYTES
from tensortide.timing.paleo.presets import PaleoPlatform, find_network, find_platform
from tensortide.timing.paleo.step import DEVICE, PLATFORM, step
from tensortide.units import whole

NETWORK = "ethernet20"
"""Paleo's own default."""
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)

Exchange = Literal["OneToAll", "TreeAllReduce", "ButterflyAllReduce", "ButterflyMixing"]
Mode = Literal["weak", "strong"]


EXCHANGES: dict[Exchange, Callable[[int], int]] = {
    "OneToAll": lambda workers: 2 * (workers - 1),
    "TreeAllReduce": lambda workers: 2 * doublings(workers),
    "ButterflyAllReduce": doublings,
    "ButterflyMixing": lambda workers: 1,
}
"""How often each exchange, as published, sends all weights over one link, one after the other. Mixing does so even
alone."""


class ScalingRow(NamedTuple):
    """One step on ``workers`` devices, in milliseconds. ``batch`` is of all workers together; ``compute`` is forward,
    backward and update of one worker, and ``collectives`` the exchange by each of ``EXCHANGES``."""

    workers: int
    batch: int
    forward: float
    backward: float
    update: float
    collectives: dict[Exchange, float]

    @property
    def compute(self) -> float:
        return self.forward + self.backward + self.update

    def total(self, exchange: Exchange) -> float:
        """Milliseconds of the step with the ``exchange``."""
        return self.compute + self.collectives[exchange]


class Scaling(NamedTuple):
    """Steps on growing numbers of workers. ``mode``: the batch of a worker is fixed (weak), or that of all (strong)."""

    mode: Mode
    rows: tuple[ScalingRow, ...]
    alone: ScalingRow
    """The step on one worker."""

    def speedups(self, exchange: Exchange) -> tuple[float, ...]:
        """Return how much faster than alone each number of workers gets through the same rows; 1 of a net that takes no
        time."""
        totals = [(row.workers if self.mode == "weak" else 1, row.total(exchange)) for row in self.rows]
        alone = self.alone.total(exchange)
        return tuple(times * alone / total if total else 1.0 for times, total in totals)


def scaling(
    net: Net,
    device: str | Device = DEVICE,
    network: str | Link = NETWORK,
    *,
    workers: Iterable[int] = WORKERS,
    batch: int | None = None,
    mode: Mode = "weak",
    platform: str | PaleoPlatform = PLATFORM,
    overlap: bool = False,
) -> Scaling:
    """Training steps of ``net`` on growing numbers of like workers, each with a share of the batch.

    Args:
        net: as ``read`` returns it.
        device: of every worker; see ``step``.
        network: between workers: a name of ``NETWORKS``, or a link of your own.
        workers: numbers of them.
        batch: rows of a worker (weak) or of all (strong); None: as the file says.
        mode: ``weak``, or ``strong``: every worker takes ``ceil(batch / workers)`` rows.
        platform: see ``step``.
        overlap: see ``step``.

    Raises:
        TensortideError: an unknown name, fewer workers than one, or shapes that do not fit.
    """
    if mode not in ("weak", "strong"):
        raise TensortideError(f"no scaling is called {mode!r}: 'weak' or 'strong'.")
    network, platform = find_network(network), find_platform(platform)
    batch = net.batch() if batch is None else batch
    send = send_time(net.params() * BYTES, network, platform)

    def row(count: int) -> ScalingRow:
        count = whole(count, "a step of {} workers", 1)
        share = batch if mode == "weak" else -(-batch // count)
        found = step(net, device, batch=share, platform=platform, overlap=overlap)
        exchanges = {name: sends(count) * send for name, sends in EXCHANGES.items()}
        rows = batch * count if mode == "weak" else batch
        return ScalingRow(count, rows, found.forward, found.backward, found.update, exchanges)

    return Scaling(mode, tuple(row(count) for count in workers), row(1))


def send_time(nbytes: float, network: Link, platform: PaleoPlatform) -> float:
    """Milliseconds of ``nbytes`` over one link, at the platform's share of its bandwidth (in units of 1e9)."""
    return nbytes / float(network.bytes_per_s) * 1000 / platform.network
