"""All-reduces of gradients beside compute: buckets of a device's gradients, their times, what of them is exposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tensortide.graph.collectives import moves_data
from tensortide.graph.model import Graph
from tensortide.placements.graphs.kernel.exchange import FULL
from tensortide.placements.graphs.kernel.records import Exchanges
from tensortide.timelines.data_parallel import FIRST_BUCKET_BYTES
from tensortide.timing.collectives.constants import CONTENTION
from tensortide.timing.collectives.recorded import payload_bytes

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints
    from tensortide.placements.graphs.simulate import Simulated

RATE = round(FULL * (1 - CONTENTION))
"""Rate of a device beside an exchange, per mille."""


@dataclass(frozen=True, eq=False)
class Beside:
    """All-reduces that run beside the ops of their device: by op its ``nbytes``. A bucket of one of the ``sizes`` takes
    ``size_ns`` [devices, sizes], one between two of them what lies between; -1 where the times of ops are known.
    ``lanes``: for each device the link on which its gradients leave. ``bucket_bytes``: those of a full bucket."""

    nbytes: Mapping[int, int]
    sizes: Ints
    size_ns: Ints
    lanes: tuple[str, ...]
    bucket_bytes: int

    @property
    def first_bytes(self) -> int:
        """Bytes of a full first bucket."""
        return min(FIRST_BUCKET_BYTES, self.bucket_bytes)


def exchange_table(graph: Graph, beside: Beside | None) -> Exchanges:
    """The table of the simulator."""
    import numpy as np

    number, none = np.full(len(graph), -1, np.int64), np.zeros(0, np.int64)
    if beside is None:
        return Exchanges(none, none, number, none, none, 0, 0, len(graph), FULL)
    ops = np.array(sorted(beside.nbytes), np.int64)
    number[ops] = np.arange(len(ops))
    nbytes = np.array([beside.nbytes[op] for op in ops.tolist()], np.int64)
    times = np.ascontiguousarray(beside.size_ns, np.int64).reshape(-1)
    limits, update = (beside.first_bytes, beside.bucket_bytes), max(beside.nbytes, default=len(graph)) + 1
    return Exchanges(ops, nbytes, number, beside.sizes, times, *limits, update, RATE)


class BucketRun(NamedTuple):
    """All-reduces of a bucket as they ran: their ``ops`` and bytes; when the last gradient was ready, when they were
    launched, when they had arrived."""

    ops: tuple[int, ...]
    nbytes: int
    ready_ns: int
    start_ns: int
    end_ns: int


def exchange_runs(run: Simulated, device: int) -> tuple[BucketRun, ...]:
    """The all-reduces of ``device`` as they ran: its buckets, or, if none run beside its ops, each op by itself."""
    graph, found = run.step.graph, list[BucketRun]()
    nbytes = {op.index: payload_bytes(op) for op in graph if moves_data(op.name) and run.device[op.index] == device}
    for ops in run.buckets[device] if run.step.beside else [(op,) for op in nbytes]:
        before = {earlier for op in ops for earlier in graph.index.dependencies[op]}
        ready = max((int(run.end_ns[op]) for op in before), default=0)
        whole = sum(nbytes[op] for op in ops)
        found.append(BucketRun(ops, whole, ready, int(run.start_ns[ops[0]]), int(run.end_ns[ops[0]])))
    return tuple(found)


def exposed_ns(buckets: Sequence[BucketRun]) -> int:
    """The time from when the last gradient of a device is ready until its last bucket has arrived, for which the update
    waits: at least the last bucket, at most all of them."""
    return buckets[-1].end_ns - max(each.ready_ns for each in buckets) if buckets else 0
