"""Collectives beside compute: their kinds, buckets, times, memory and channels, and what of them is exposed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensortide.graph.communication import kind_of, payload_bytes
from tensortide.graph.model import Graph
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.channels import SharedChannel
from tensortide.placements.graphs.kernel.records import Exchanges
from tensortide.play.rates import FULL
from tensortide.timelines.data_parallel import exposed_after_ns
from tensortide.timing.collectives.constants import CONTENTION

if TYPE_CHECKING:
    from tensortide.placements.graphs.simulate import Simulated

RATE = round(FULL * (1 - CONTENTION))
"""Rate of a device beside an exchange, per mille."""


class ExchangeKind(NamedTuple):
    """A kind of collective that runs beside compute. ``buffers``: copies of its bytes that its buckets keep throughout
    the step."""

    buffers: int


EXCHANGES: Mapping[str, ExchangeKind] = {"all_reduce": ExchangeKind(buffers=1)}
"""Collectives that run beside compute, by their names in ``COLLECTIVES``. Buckets of ``DistributedDataParallel`` are
flat buffers into which gradients are copied, unless they are views of them (``gradient_as_bucket_view``)."""


class ExchangeOp(NamedTuple):
    """A collective of a step: its op, kind, and the dtype and bytes of its tensor."""

    op: int
    kind: str
    dtype: str
    nbytes: int

    @property
    def buffer_bytes(self) -> int:
        """Bytes that its bucket has for it throughout the step."""
        return EXCHANGES[self.kind].buffers * self.nbytes


def exchanges_of(graph: Graph) -> tuple[ExchangeOp, ...]:
    """The collectives of ``graph`` that may run beside compute."""
    return tuple(
        ExchangeOp(op.index, kind, graph.tensors[graph.ops[op.index].inputs[0]].dtype, payload_bytes(op))
        for op in graph
        if (kind := kind_of(op.name) or "") in EXCHANGES
    )


@dataclass(frozen=True, eq=False)
class Beside:
    """``exchanges`` that run beside the ops of their device, in buckets of one kind and dtype. A bucket of one of the
    ``sizes`` takes ``size_ns`` [devices, ``streams``, sizes], one between two of them what lies between; -1 where the
    times of ops are known. The first bucket of a stream is full with ``first_bytes``, the others with ``bucket_bytes``.
    ``lanes``: for each device the link on which its gradients leave; ``channels`` are those that are not its own."""

    exchanges: tuple[ExchangeOp, ...]
    sizes: Ints
    size_ns: Ints
    first_bytes: int
    bucket_bytes: int
    lanes: tuple[str, ...]
    channels: tuple[SharedChannel, ...] = ()

    @functools.cached_property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """Kinds and dtypes whose collectives fill buckets of their own."""
        return streams_of(self.exchanges)

    @property
    def ops(self) -> frozenset[int]:
        """The ops of the collectives."""
        return frozenset(each.op for each in self.exchanges)


def streams_of(exchanges: Sequence[ExchangeOp]) -> tuple[tuple[str, str], ...]:
    """The kinds and dtypes of ``exchanges``, in the order in which they appear."""
    return tuple(dict.fromkeys((each.kind, each.dtype) for each in exchanges))


def exchange_table(graph: Graph, beside: Beside | None, devices: int, lanes: int) -> Exchanges:
    """The table of the simulator, on so many ``devices`` and ``lanes`` of links."""
    none = np.zeros(0, np.int64)
    own = () if beside is None else beside.exchanges
    number = np.full(len(graph), -1, np.int64)
    number[[each.op for each in own]] = np.arange(len(own))
    if beside is None:
        return Exchanges(none, none, number, none, 0, none, none, 0, 0, len(graph), FULL, none, none, none, none)
    streams = {stream: place for place, stream in enumerate(beside.streams)}
    return Exchanges(
        np.array([each.op for each in own], np.int64),
        np.array([each.nbytes for each in own], np.int64),
        number,
        np.array([streams[each.kind, each.dtype] for each in own], np.int64),
        len(streams),
        beside.sizes,
        np.ascontiguousarray(beside.size_ns, np.int64).reshape(-1),
        beside.first_bytes,
        beside.bucket_bytes,
        max((each.op + 1 for each in own), default=len(graph)),
        RATE,
        *_sharers(beside.channels, devices, lanes),
    )


def _sharers(channels: Sequence[SharedChannel], devices: int, lanes: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Number the users of shared channels, after the ``devices``: queues of transfers, then exchanges.

    Returns the numbers, the channels of each, where those of each begin, and how often it passes them at a time.
    """
    passes: dict[int, list[tuple[int, int]]] = {}
    for number, channel in enumerate(channels):
        for queue, flows in channel.queues.items():
            passes.setdefault(devices + queue, []).append((number, flows))
        for device, flows in channel.rings.items():
            passes.setdefault(devices + lanes + device, []).append((number, flows))
    sharers = sorted(passes)
    pairs = np.array([pair for each in sharers for pair in passes[each]], np.int64).reshape(-1, 2)
    bounds = np.cumsum([0, *(len(passes[each]) for each in sharers)])
    return np.array(sharers, np.int64), pairs[:, 0].copy(), bounds.astype(np.int64), pairs[:, 1].copy()


class BucketRun(NamedTuple):
    """The collectives of a bucket as they ran: their ``ops``, kind and bytes; when the last gradient was ready, when
    they were launched, when they had arrived."""

    ops: tuple[int, ...]
    kind: str
    nbytes: int
    ready_ns: int
    start_ns: int
    end_ns: int


def exchange_runs(run: Simulated, device: int) -> tuple[BucketRun, ...]:
    """The collectives of ``device`` as they ran: its buckets, or, if none run beside its ops, each op by itself."""
    graph, found = run.step.graph, list[BucketRun]()
    own = {each.op: each for each in exchanges_of(graph) if run.device[each.op] == device}
    for ops in run.buckets[device] if run.step.beside else [(op,) for op in own]:
        before = {earlier for op in ops for earlier in graph.index.dependencies[op]}
        ready = max((int(run.end_ns[op]) for op in before), default=0)
        whole, first = sum(own[op].nbytes for op in ops), ops[0]
        found.append(BucketRun(ops, own[first].kind, whole, ready, int(run.start_ns[first]), int(run.end_ns[first])))
    return tuple(found)


def exposed_ns(buckets: Sequence[BucketRun]) -> int:
    """The time from when the last gradient of a device is ready until its last bucket has arrived, for which the update
    waits: at least the last bucket, at most all of them."""
    runs = [(each.start_ns, each.end_ns) for each in buckets]
    return exposed_after_ns(runs, max((each.ready_ns for each in buckets), default=0))
