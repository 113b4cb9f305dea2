"""The machine that G10's policies run on: memory, a wire that host and drive share, pages in batches; and a kernel
trace as the policies read it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensortide.errors import GraphError
from tensortide.graph.model import Graph, Phase
from tensortide.graph.unroll import unrolled
from tensortide.memory.lifetimes import Residence, residences
from tensortide.timing.catalogue import Device
from tensortide.timing.clusters import ClusterDevice, Tier
from tensortide.timing.links import Link

Ints: TypeAlias = NDArray[np.int64]

PAGE = 4096
"""Bytes of a page; every tensor takes whole pages."""
GIB = 1 << 30
BATCH_PAGES = 50
"""Pages that a batch moves at most, each way."""
ALLOCATION_NS = Fraction(814, 10**6)
"""Time to allocate a byte of device memory."""


_DEVICE_BYTES, _HOST_BYTES = 40 * GIB, 128 * 10**9
_HOST = Link("host", Fraction(15_754_000_000), 45_000, capacity_bytes=_HOST_BYTES)
_DRIVE = Link("ssd", Fraction(3_200_000_000), 65_000)
_TIERS = (Tier(_HOST), Tier(_DRIVE, over="host"))
AUTHORS = ClusterDevice("gpu", Device(name="A100", memory_gbytes_per_s=1555), _DEVICE_BYTES, _TIERS)
"""The machine of G10's authors."""


class G10Machine(msgspec.Struct, frozen=True):
    """A device with its tiers as G10's planner and kernels take it: capacities in bytes, rates in bytes per second, and
    latencies of transfers.

    The drive is behind the wire that leads to the host. The defaults are those of G10's authors.
    """

    device_bytes: int = _DEVICE_BYTES
    host_bytes: int = _HOST_BYTES
    wire: int = int(_HOST.bytes_per_s)
    drive: int = int(_DRIVE.bytes_per_s)
    host_latency_ns: int = _HOST.latency_ns
    drive_latency_ns: int = _DRIVE.latency_ns

    @property
    def beside(self) -> int:
        """Rate to and from the host while the drive is in use: what it leaves of the wire, unless that is nothing."""
        return self.wire - self.drive if self.drive < self.wire else self.wire

    @property
    def batch_ns(self) -> int:
        """Time in which the wire moves a batch of pages."""
        return BATCH_PAGES * PAGE * 10**9 // self.wire

    @property
    def drive_pages(self) -> int:
        """Pages of a batch that may come from or go to the drive, each way."""
        return min(BATCH_PAGES, BATCH_PAGES * self.drive // self.wire)

    def links(self) -> dict[str, tuple[Link, ...]]:
        """The links of machines whose every plan is legal on this one, by name: the wire for the host alone, and split
        between host and drive; or for the drive alone, where it leaves nothing of the wire, or the host has no room."""
        drive = Link("ssd", Fraction(min(self.drive, self.wire)), self.drive_latency_ns)

        def host(rate: int) -> Link:
            return Link("host", Fraction(rate), self.host_latency_ns, capacity_bytes=self.host_bytes)

        if not self.host_bytes:
            return {"drive": (drive,)}
        alone = {"host": (host(self.wire),)}
        if self.wire > self.drive:
            return {**alone, "host and drive": (host(self.wire - self.drive), drive)}
        return {**alone, "drive": (drive,)}


def machine_of(device: ClusterDevice) -> G10Machine:
    """The G10Machine of ``device`` with its tiers ``host`` and ``ssd``: a wire with the rates of all that are not over
    another's, which the drive does not exceed. What is not given is as G10's authors have it."""
    links = {tier.link.name: tier.link for tier in device.tiers}
    host, drive = links.get("host", _HOST), links.get("ssd", _DRIVE)
    wire = sum(int(tier.link.bytes_per_s) for tier in device.tiers if not tier.over)
    return G10Machine(
        _DEVICE_BYTES if device.capacity_bytes is None else device.capacity_bytes,
        _HOST_BYTES if host.capacity_bytes is None else host.capacity_bytes,
        wire,
        min(int(drive.bytes_per_s), wire),
        host.latency_ns,
        drive.latency_ns,
    )


@dataclass(frozen=True, eq=False)
class Trace:
    """A kernel trace: ``pages`` of each tensor and whether it ``lasts`` across steps; ``inputs`` and ``outputs`` of
    each kernel, each once; the ``ns`` it takes with its operands resident, with its outputs absent
    (``outputs_absent_ns``) and with all absent (``all_absent_ns``). ``loss``: the first kernel after the forward pass.
    """

    pages: Ints
    lasts: NDArray[np.bool_]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    ns: Ints
    outputs_absent_ns: Ints
    all_absent_ns: Ints
    loss: int

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def ideal_ns(self) -> int:
        """Time of a step whose tensors are all resident."""
        return int(self.ns.sum())

    def operands(self, kernel: int) -> tuple[int, ...]:
        """The tensors that a kernel reads or writes, each once."""
        return tuple(dict.fromkeys((*self.inputs[kernel], *self.outputs[kernel])))

    @functools.cached_property
    def uses(self) -> list[list[int]]:
        """The kernels that read or write each tensor, ascending."""
        found: list[list[int]] = [[] for _ in self.pages]
        for kernel in range(len(self)):
            for tensor in self.operands(kernel):
                found[tensor].append(kernel)
        return found

    @functools.cached_property
    def deaths(self) -> list[int]:
        """For each tensor the kernel after the last that reads it, or after its first use if none does; the number of
        kernels if it lasts; -1 if no kernel uses it."""
        found = [-1] * len(self.pages)
        for tensor, uses in enumerate(self.uses):
            if self.lasts[tensor]:
                found[tensor] = len(self)
            elif uses:
                found[tensor] = max((k for k in uses if tensor in self.inputs[k]), default=uses[0]) + 1
        return found

    @functools.cached_property
    def births_by_kernel(self) -> dict[int, list[int]]:
        """The tensors that do not last by the kernel that uses them first."""
        return _by_kernel((tensor, uses[0]) for tensor, uses in enumerate(self.uses) if uses and not self.lasts[tensor])

    @functools.cached_property
    def deaths_by_kernel(self) -> dict[int, list[int]]:
        """The tensors that do not last by the kernel at which they are dead."""
        return _by_kernel((tensor, death) for tensor, death in enumerate(self.deaths) if not self.lasts[tensor])


def _by_kernel(rows: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for tensor, kernel in rows:
        found.setdefault(kernel, []).append(tensor)
    return found


def trace_of(
    graph: Graph,
    durations_ns: Sequence[int],
    *,
    outputs_absent_ns: Sequence[int] = (),
    all_absent_ns: Sequence[int] = (),
) -> Trace:
    """Make the trace of a Graph, its loops written out, whose tensors are its storages.

    Times with absent operands are those of ``durations_ns`` if they are not known, and never below them. Raises
    GraphError if they are not as many as there are ops.
    """
    graph = unrolled(graph)
    ns = np.array(durations_ns, np.int64)
    outputs = np.array(outputs_absent_ns or durations_ns, np.int64)
    everything = np.array(all_absent_ns or outputs, np.int64)
    if not len(ns) == len(outputs) == len(everything) == len(graph):
        raise GraphError(f"{len(graph)} kernels need a time each, not {len(ns)}, {len(outputs)} and {len(everything)}")
    outputs = np.maximum(outputs, ns)
    return Trace(
        pages=np.array([-(-int(storage.nbytes) // PAGE) for storage in graph.storages], np.int64),
        lasts=np.array([residence is Residence.ALWAYS for residence in residences(graph)], np.bool_),
        inputs=graph.index.reads,
        outputs=graph.index.writes,
        ns=ns,
        outputs_absent_ns=outputs,
        all_absent_ns=np.maximum(everything, outputs),
        loss=next((k for k, op in enumerate(graph.ops) if op.phase is not Phase.FORWARD), len(graph)),
    )
