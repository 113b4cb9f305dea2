"""Data-parallel training on a cluster: the all-reduces of the gradients beside the predicted step of one device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple, TypeVar

from tensortide.graph.communication import kind_of, payload_bytes
from tensortide.graph.model import Graph, Phase, Role
from tensortide.graph.ways import rank_of, ways
from tensortide.shown import Show
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.step import StepTimeline
from tensortide.timing.collectives import COLLECTIVES, Nodes, predict_collective
from tensortide.timing.estimates import UNKNOWN, Estimate

BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients that are reduced together: the default of DistributedDataParallel."""
FIRST_BUCKET_BYTES = 2**20
"""Bytes of its first bucket, which is small so that the exchange begins early."""


Ns = TypeVar("Ns", int, float)
"""Nanoseconds, rounded or not."""


class Exposed(NamedTuple):
    """Time that a device waits for communication, with what it is at the ends of the interval of all communication."""

    time_ns: float
    low_ns: float
    high_ns: float


class Exchange(NamedTuple):
    """The all-reduces of a step: ``nbytes`` of gradients in ``buckets``, which take ``time`` together.

    ``hidden_ns`` of that run while the device still computes gradients, if the two overlap without slowing each other;
    at the ends of the interval of ``time``, ``ends_ns`` are not hidden. ``runs`` are start and end of each. ``waits``:
    from an op on, the device starts later by nanoseconds.
    """

    nbytes: Annotated[int, Show("Exchanged", "bytes")]
    buckets: int
    time: Estimate
    hidden_ns: int
    ends_ns: tuple[int, int] = (0, 0)
    runs: tuple[tuple[int, int], ...] = ()
    waits: tuple[tuple[int, int], ...] = ()

    @property
    def exposed_ns(self) -> Annotated[int, Show("exposed")]:
        """Time that the optimizer waits for the all-reduces where they overlap with the backward pass."""
        return max(0, round(self.time.time_ns) - self.hidden_ns)

    def exposed(self, *, overlap: bool) -> Exposed:
        """The same with its ends; all of ``time`` without overlap."""
        if overlap:
            return Exposed(self.exposed_ns, *self.ends_ns)
        return Exposed(self.time.time_ns, self.time.low_ns, self.time.high_ns)


NO_EXCHANGE = Exchange(0, 0, Estimate(), 0)


def gradient_exchange(line: StepTimeline, nodes: Nodes, bucket_bytes: int = BUCKET_BYTES) -> Exchange:
    """All-reduce the gradients of ``line`` among all devices of ``nodes``, in the order in which they are ready.

    A bucket starts when its last gradient is there and the bucket before is done. Nothing is exchanged by one device,
    and by a step without gradients.
    """
    graph = line.recorded
    if nodes.size == 1:
        return NO_EXCHANGE
    buckets = _buckets(_ready(graph, line), bucket_bytes)
    if not buckets:
        return NO_EXCHANGE
    times = [predict_collective("all_reduce", size, nodes.size, nodes).estimate for _, size in buckets]
    last = graph.index.backward_end - 1
    end = int(line.run_start_ns[last] + line.run_ns[last])
    ready = [at for at, _ in buckets]
    runs = queued(ready, [round(time.time_ns) for time in times])
    whole = sum(times, Estimate())
    exposed, *ends = (
        exposed_after_ns(queued(ready, [round(time.time_ns * factor) for time in times]), end)
        for factor in (1.0, whole.low_ns / whole.time_ns, whole.high_ns / whole.time_ns)
    )
    hidden = max(0, round(whole.time_ns) - exposed)
    waits = ((last + 1, round(whole.time_ns) - hidden),)
    nbytes = sum(size for _, size in buckets)
    return Exchange(nbytes, len(runs), whole, hidden, (ends[0], ends[1]), tuple(runs), waits)


def queued(ready: Iterable[Ns], times: Iterable[Ns]) -> list[tuple[Ns, Ns]]:
    """Start and end of each bucket: it starts when it is ready and the one before has arrived."""
    runs = list[tuple[Ns, Ns]]()
    for at, time in zip(ready, times, strict=True):
        start = max(runs[-1][1], at) if runs else at
        runs.append((start, start + time))
    return runs


def exposed_after_ns(runs: Sequence[tuple[Ns, Ns]], computed_ns: Ns) -> Ns:
    """The exposed communication of exchanges beside compute that ends at ``computed_ns``: from then until the last of
    ``runs``, which have starts and ends, has arrived."""
    end = runs[-1][1] if runs else computed_ns
    return max(end, computed_ns) - computed_ns


def buckets_of(
    gradients: Iterable[tuple[Hashable, int]], limit: int = BUCKET_BYTES, first: int | None = None
) -> list[list[int]]:
    """Divide gradients, given by dtype and bytes in the order in which they are ready, into buckets, in the order in
    which these leave: the numbers of the gradients of each.

    A bucket has gradients of one dtype. It is full once it has ``limit`` bytes, the first of a dtype once it has
    ``first`` (default: ``limit``); the gradient that fills it is in it. The rest leave last, that of the dtype that
    began last before the others. This is the rule of PyTorch's ``Reducer``.
    """
    left: dict[Hashable, list[int]] = {}
    sizes: dict[Hashable, int] = {}
    found, begun = list[list[int]](), set[Hashable]()
    for number, (dtype, nbytes) in enumerate(gradients):
        left.setdefault(dtype, []).append(number)
        sizes[dtype] = sizes.get(dtype, 0) + nbytes
        if sizes[dtype] >= (limit if dtype in begun or first is None else first):
            found.append(left[dtype])
            left[dtype], sizes[dtype] = [], 0
            begun.add(dtype)
    return found + [bucket for bucket in reversed(left.values()) if bucket]


def recorded_exchange(graph: Graph, nodes: Nodes) -> tuple[Exchange, dict[int, Estimate]]:
    """Predict the collectives that ``graph`` was captured with, each among the ranks of its own group: none is hidden.
    Those of all ranks are among all devices of ``nodes``, be they more or less.

    Also returns the time of each op; one whose kind is not known is an unknown time.
    """
    times: dict[int, Estimate] = {}
    nbytes, most = 0, max(map(len, graph.meta.groups.values()), default=0)
    for op, way in ways(rank_of(graph), graph):
        kind, size = kind_of(op.name), payload_bytes(op)
        nbytes += size
        members = way.members if len(way.ranks) < most or way.sender >= 0 else range(nodes.size)
        times[op.index] = UNKNOWN if kind is None else _collective(kind, size, members, nodes)
    waits = tuple((op + 1, round(time.time_ns)) for op, time in times.items())
    whole = sum(times.values(), Estimate())
    ends = round(whole.low_ns), round(whole.high_ns)
    return Exchange(nbytes, len(times), whole, 0, ends, waits=waits), times


def with_exchange(line: StepTimeline, exchange: Exchange) -> tuple[Events, tuple[tuple[int, int], ...]]:
    """The events of ``line`` with the time that the device waits for ``exchange``, and when its collectives run.

    The host goes on meanwhile, up to the next op whose result it waits for.
    """
    import numpy as np

    delays = np.zeros(len(line.recorded) + 1, np.int64)
    for op, ns in exchange.waits:
        delays[op] += ns
    delays = np.cumsum(delays)
    waited = np.where(np.array(line.clocks.waits, bool), delays[:-1], 0)
    of_host = np.concatenate([[0], np.maximum.accumulate(waited)[:-1]]) if len(waited) else waited
    events = line.events
    later = np.where(events.kind == Kind.ISSUE, of_host[events.index], delays[events.index])
    runs = exchange.runs
    if not runs:  # collectives of the step itself: each where the device stands at it
        starts = (line.run_start_ns + line.run_ns + delays[:-1]).tolist()
        runs = tuple((starts[op - 1], starts[op - 1] + ns) for op, ns in exchange.waits)
    return replace(events, start_ns=events.start_ns + later, end_ns=events.end_ns + later), runs


def _collective(kind: str, nbytes: int, members: Sequence[int], nodes: Nodes) -> Estimate:
    row = COLLECTIVES[kind]
    wanted = min(2 if row.joins_two else len(members), nodes.size)
    ranks = members if len(members) == wanted and max(members) < nodes.size else range(wanted)
    return predict_collective(kind, row.padded(nbytes, wanted), ranks, nodes).estimate


class _Ready(NamedTuple):
    """A gradient that has been written for the last time in the backward pass: when, its storage, dtype and bytes."""

    at_ns: int
    storage: int
    dtype: str
    nbytes: int


def _ready(graph: Graph, line: StepTimeline) -> list[_Ready]:
    """The gradients in the order in which they are ready."""
    ends = (line.run_start_ns + line.run_ns).tolist()
    gradients = {i for i, storage in enumerate(graph.storages) if storage.role is Role.GRADIENT}
    dtypes = {tensor.storage: tensor.dtype for tensor in reversed(graph.tensors)}
    written: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.BACKWARD:
            for storage in (*graph.index.allocated[index], *graph.index.writes[index]):
                if storage in gradients:
                    written[storage] = ends[index]
    return sorted(_Ready(at, s, dtypes[s], int(graph.storages[s].nbytes)) for s, at in written.items())


def _buckets(ready: Sequence[_Ready], limit: int) -> list[tuple[int, int]]:
    """Return when each bucket is full, and its bytes."""
    buckets = buckets_of(((each.dtype, each.nbytes) for each in ready), limit)
    return [(max(ready[i].at_ns for i in bucket), sum(ready[i].nbytes for i in bucket)) for bucket in buckets]
