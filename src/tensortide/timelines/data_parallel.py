"""Data-parallel training on a cluster: the all-reduces of the gradients beside the predicted step of one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.graph.collectives import moves_data
from tensortide.graph.model import Graph, Phase, Role
from tensortide.timelines.step import StepTimeline
from tensortide.timing.collectives import KINDS, Cluster, predict_collective
from tensortide.timing.collectives.recorded import kind_of, payload_bytes
from tensortide.timing.estimates import UNKNOWN, Estimate

BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients that are reduced together: the default of DistributedDataParallel."""


class Exchange(NamedTuple):
    """The all-reduces of a step: ``nbytes`` of gradients in ``buckets``, which take ``time`` together.

    ``hidden_ns`` of that run while the device still computes gradients, if the two overlap without slowing each other.
    ``runs`` are start and end of each then.
    """

    nbytes: int
    buckets: int
    time: Estimate
    hidden_ns: int
    runs: tuple[tuple[int, int], ...] = ()

    @property
    def exposed_ns(self) -> int:
        """Time that the optimizer waits for the all-reduces where they overlap with the backward pass."""
        return max(0, round(self.time.time_ns) - self.hidden_ns)

    def exposed(self, *, overlap: bool) -> Estimate:
        """The same as a value that adds to the step's; all of ``time`` without overlap."""
        share = self.exposed_ns / self.time.time_ns if overlap and self.time.time_ns else 1.0
        return _scaled(self.time, share)


NO_EXCHANGE = Exchange(0, 0, Estimate(), 0)


def gradient_exchange(line: StepTimeline, cluster: Cluster, bucket_bytes: int = BUCKET_BYTES) -> Exchange:
    """All-reduce the gradients of ``line`` among all devices of ``cluster``, in the order in which they are ready.

    A bucket starts when its last gradient is there and the bucket before is done. Nothing is exchanged by one device,
    and by a step without gradients.
    """
    graph = line.recorded
    if cluster.size == 1:
        return NO_EXCHANGE
    ready = _ready(graph, line)
    whole, free, nbytes, runs = Estimate(), 0, 0, list[tuple[int, int]]()
    for at, size in _buckets(ready, bucket_bytes):
        time = predict_collective("all_reduce", size, cluster.size, cluster).estimate
        start = max(free, at)
        free = start + round(time.time_ns)
        runs.append((start, free))
        whole, nbytes = whole + time, nbytes + size
    exposed = max(0, free - _backward_end(line))
    return Exchange(nbytes, len(runs), whole, max(0, round(whole.time_ns) - exposed), tuple(runs))


def recorded_exchange(graph: Graph, cluster: Cluster) -> tuple[Exchange, dict[int, Estimate]]:
    """Predict the collectives that ``graph`` was captured with, among all devices of ``cluster``: none is hidden.

    Also returns the time of each op; one whose kind is not known is an unknown time.
    """
    times: dict[int, Estimate] = {}
    nbytes = 0
    for op in graph:
        if moves_data(op.name):
            kind, size = kind_of(op.name), payload_bytes(op)
            nbytes += size
            times[op.index] = UNKNOWN if kind is None else _collective(kind, size, cluster)
    return Exchange(nbytes, len(times), sum(times.values(), Estimate()), 0), times


def _collective(kind: str, nbytes: int, cluster: Cluster) -> Estimate:
    ranks = 2 if kind == "send_recv" else cluster.size
    whole = -(-nbytes // ranks) * ranks if KINDS[kind].divided else nbytes  # padded, as libraries do
    return predict_collective(kind, whole, ranks, cluster).estimate


def _ready(graph: Graph, line: StepTimeline) -> list[tuple[int, int]]:
    """When each gradient has been written for the last time in the backward pass, and its bytes; in that order."""
    ends = (line.run_start_ns + line.run_ns).tolist()
    gradients = {i for i, storage in enumerate(graph.storages) if storage.role is Role.GRADIENT}
    written: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.BACKWARD:
            for storage in (*graph.index.allocated[index], *graph.index.writes[index]):
                if storage in gradients:
                    written[storage] = ends[index]
    return sorted((at, int(graph.storages[storage].nbytes)) for storage, at in written.items())


def _buckets(ready: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """When each bucket is full, and its bytes."""
    found: list[tuple[int, int]] = []
    size = last = 0
    for at, nbytes in ready:
        if size and size + nbytes > limit:
            found.append((last, size))
            size = 0
        size, last = size + nbytes, at
    return [*found, (last, size)] if size else found


def _backward_end(line: StepTimeline) -> int:
    backward = [i for i, op in enumerate(line.recorded.ops) if op.phase is Phase.BACKWARD]
    return int((line.run_start_ns + line.run_ns)[backward].max()) if backward else 0


def _scaled(time: Estimate, share: float) -> Estimate:
    """A part of ``time``, with the same relative interval."""
    part = time.time_ns * share
    return Estimate.of(part, *_halves(time), time.provenance, "exchange") if part else Estimate()


def _halves(time: Estimate) -> tuple[float, float]:
    return math.log(time.time_ns / time.low_ns), math.log(time.high_ns / time.time_ns)
