"""Groups of lanes that each run a Plan on their part of the batch, and average gradients with each other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
import torch.distributed as dist

from tensortide.errors import RunError
from tensortide.graph.model import Graph
from tensortide.placements.graphs.replicas import Groups
from tensortide.recorder.torch_dtypes import torch_dtype
from tensortide.run.placed.exchange import Exchange, reduction
from tensortide.run.placed.live_storages import LiveStorages


class ExchangeSpan(NamedTuple):
    """Collectives of a bucket as they ran: their ``ops`` and bytes, from when this rank began until it had the
    averages, ns of this machine's clock."""

    ops: tuple[int, ...]
    nbytes: int
    start_ns: int
    end_ns: int


class _Buffer(NamedTuple):
    """The buffer of a bucket: all of it, and the part of each tensor."""

    flat: torch.Tensor
    parts: dict[int, torch.Tensor]


class Averages:
    """Means of the gradients of one rank over those that have its lane in the other groups.

    Buckets leave in their order, in a thread and a process group of their own, so that the lane goes on meanwhile.
    Those beside it are flat buffers, as those of ``DistributedDataParallel`` are: gradients are copied into them as
    they are ready, and back once they have arrived. All ranks make theirs at the same time. One group has none.
    ``spans`` are those of the last step.
    """

    def __init__(self, graph: Graph, groups: Groups, rank: int) -> None:
        size = max(1, len(groups.buckets))
        buckets = groups.buckets[rank % size] if groups.buckets else ()
        self._graph = graph
        self._peers = range(rank % size, size * groups.count, size)
        self._bucket = {op: bucket for bucket in buckets for op in bucket}
        self._beside = groups.beside
        self._buffers = {bucket: self._buffer(bucket) for bucket in buckets if groups.beside}
        self._exchange = Exchange(rank, dist.new_group() if groups.count > 1 else None)
        self._thread = ThreadPoolExecutor(1)
        self._reached: set[int] = set()
        self._held: set[int] = set()
        self._leaving: dict[int, Future[None]] = {}
        self.spans: list[ExchangeSpan] = []

    @property
    def sent_bytes(self) -> dict[int, int]:
        """Bytes sent to each other rank in the last step."""
        return dict(self._exchange.sent_bytes)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers of all buckets."""
        return sum(buffer.flat.untyped_storage().nbytes() for buffer in self._buffers.values())

    def _buffer(self, bucket: tuple[int, ...]) -> _Buffer:
        """The buffer of a bucket, all of whose gradients have one dtype."""
        views = {number: self._graph.tensors[number] for op in bucket for number in self._graph.ops[op].inputs}
        sizes = [int(view.numel) for view in views.values()]
        (dtype,) = {view.dtype for view in views.values()}
        flat = torch.empty(sum(sizes), dtype=torch_dtype(dtype))
        return _Buffer(flat, dict(zip(views, flat.split(sizes), strict=True)))

    def begin(self) -> None:
        """Begin a step."""
        self.spans = []
        self._exchange.sent_bytes.clear()
        self._reached.clear()

    def reach(self, op: int, storages: LiveStorages) -> None:
        """Note that the gradients of the all-reduce ``op`` are ready: with the last of its bucket it leaves."""
        bucket = self._bucket[op]
        self._reached.add(op)
        self._held.update(self._graph.index.writes[op])
        if self._beside:
            for number in self._graph.ops[op].inputs:
                self._buffers[bucket].parts[number].copy_(storages.view(number).reshape(-1))
        if not self._reached.issuperset(bucket):
            return
        tensors = [storages.view(tensor) for each in bucket for tensor in self._graph.ops[each].inputs]
        leaving = self._thread.submit(self._average, bucket, tensors, reduction(self._graph[op].call))
        written = {storage for each in bucket for storage in self._graph.index.writes[each]}
        self._held -= written
        self._leaving |= dict.fromkeys(written, leaving)
        if not self._beside:
            self.wait(written)

    def wait(self, storages: Iterable[int]) -> None:
        """Wait until those of ``storages`` that are gradients have arrived.

        Raises RunError for one whose bucket has not left.
        """
        for storage in storages:
            if storage in self._held:
                raise RunError(
                    f"the plan uses the gradient {self._graph.storages[storage].name} before the rest of its bucket is "
                    "ready: it is a plan of other buckets"
                )
            if storage in self._leaving:
                self._leaving.pop(storage).result()

    def finish(self) -> None:
        """Wait for all that is left."""
        self.wait([*self._leaving])

    @torch.no_grad()
    def _average(self, bucket: tuple[int, ...], tensors: Sequence[torch.Tensor], how: str) -> None:
        began = time.monotonic_ns()
        buffer = self._buffers.get(bucket)
        self._exchange.reduce(tensors if buffer is None else [buffer.flat], self._peers, how)
        self._exchange.finish()
        if buffer is not None:
            for tensor, part in zip(tensors, buffer.parts.values(), strict=True):
                tensor.copy_(part.view(tensor.shape))
        nbytes = sum(tensor.nbytes for tensor in tensors)
        self.spans.append(ExchangeSpan(bucket, nbytes, began, time.monotonic_ns()))
