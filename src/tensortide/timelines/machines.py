"""A step on one of several machines that a person chooses between: its predicted time, rate, and use of the devices."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec

from tensortide.cost import Resolver, count
from tensortide.errors import TensortideError
from tensortide.graph.communication import moves_data
from tensortide.graph.model import Graph
from tensortide.shown import Show
from tensortide.timelines.data_parallel import NO_EXCHANGE, Exchange, Exposed, gradient_exchange, recorded_exchange
from tensortide.timelines.step import Launch, StepTimeline, step_timeline
from tensortide.timing.catalogue import Device, meant
from tensortide.timing.collectives import Nodes
from tensortide.timing.collectives.nodes import LinkRates
from tensortide.timing.durations import Durations
from tensortide.timing.estimate import estimate
from tensortide.timing.estimates import BOUNDS, Estimate, Provenance
from tensortide.timing.families import compute_dtype
from tensortide.timing.forecast import ForecastRow
from tensortide.timing.rates import matrix_tflops
from tensortide.timing.totals import by_bound
from tensortide.units import LONGEST

PER_NODE = 8
"""Devices of a node where a number of devices says nothing of nodes."""

_COUNTS = re.compile(r"(?:([0-9]{1,9})x)?([0-9]{1,9})x(.+)", re.IGNORECASE)
_NO_COUNT = re.compile(r"[-+]?[\d.,_]+x", re.IGNORECASE)


@dataclass(frozen=True)
class Machines:
    """Devices of one kind: ``nodes`` of ``per_node`` each. ``text`` is how they were asked for; ``rates`` are
    those of their links that are given in place of the catalogue's, ``wired`` the nodes of a file."""

    text: str
    device: Device
    per_node: int = 1
    nodes: int = 1
    rates: LinkRates = LinkRates()
    wired: Nodes | None = None

    @property
    def size(self) -> int:
        """Devices of all nodes."""
        return self.per_node * self.nodes

    def __str__(self) -> str:
        counts = f"{self.nodes} x " * (self.nodes > 1) + f"{self.per_node} x " * (self.size > 1)
        return f"{counts}{self.device.name}" + ("" if self.wired is None else f" ({self.wired.name})")

    @cached_property
    def joined(self) -> Nodes:
        """The same with their links."""
        return self.wired or self.rates.nodes_of(self.device, self.per_node, self.nodes)


def machines(text: str) -> Machines:
    """Read ``h200``, ``4xh100-sxm``, ``16xa100-sxm-80gb`` (two nodes of eight) or ``2x4xa100-sxm-80gb`` (nodes first).

    Raises TensortideError for an unknown device, for none of them, and for more than a node that fill no whole nodes.
    """
    counts, name = split(text)
    return Machines(text, meant(name)[0], *counts)


def split(text: str) -> tuple[tuple[int, int], str]:
    """Devices of a node, nodes, and the name of the device. Raises TensortideError as ``machines`` does."""
    found = _COUNTS.fullmatch(text.strip())
    if found is None:
        if _NO_COUNT.match(text.strip()):
            shown = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
            raise TensortideError(
                f"{shown}: the number of devices is a positive whole number of at most 9 digits, as in 4xh100-sxm"
            )
        return (1, 1), text
    count, nodes, name = int(found[2]), int(found[1] or 1), found[3]
    if not count or not nodes:
        raise TensortideError(f"{text}: a machine has at least one device")
    if found[1] is None and count > PER_NODE:
        nodes, rest = divmod(count, PER_NODE)
        if rest:
            raise TensortideError(f"{text}: {count} devices fill no nodes of {PER_NODE}: write NODESxDEVICESx{name}")
        count = PER_NODE
    return (count, nodes), name


class Shares(NamedTuple):
    """Shares of a step: of ops by what bounds them, of waiting for the host, and of exposed communication."""

    bound_compute_share: Annotated[float | None, Show("arithmetic")]
    bound_memory_share: Annotated[float | None, Show("bytes")]
    bound_launch_share: Annotated[float | None, Show("launches")]
    bound_views_share: Annotated[float | None, Show("views", if_any=True)]
    host_share: Annotated[float | None, Show("host")]
    exposed_share: Annotated[float | None, Show("communication")]


@dataclass(frozen=True)
class MachineStep:
    """The step ``graph`` on ``machines``, each device of which takes the whole of ``line`` on data of its own."""

    graph: Graph
    machines: Machines
    durations: Durations
    line: StepTimeline
    exchange: Exchange
    peak_ns: float
    """Time of the step's products at the dense peak of their dtypes, without recomputation: its model FLOPs."""

    @property
    def machine(self) -> Annotated[str, Show("Machine")]:
        return str(self.machines)

    @property
    def ops(self) -> int:
        return len(self.graph)

    @cached_property
    def step_time(self) -> Estimate:
        """The step of all devices: that of one, and what is exposed of the exchange of gradients."""
        return self._with(self.exchange.exposed(overlap=True))

    @cached_property
    def step_time_apart(self) -> Estimate:
        """The same without overlap: gradients are exchanged after the backward pass."""
        return self._with(self.exchange.exposed(overlap=False))

    def _with(self, other: Exposed) -> Estimate:
        """The step and what is exposed. Its interval has what the step becomes at the ends of the intervals of both,
        which are independent."""
        alone = self.line.estimate
        whole = alone + Estimate(other.time_ns, by_provenance_ns={self.exchange.time.provenance: other.time_ns})
        if not other.high_ns or not whole.time_ns:
            return whole
        shifts = (
            (alone.low_ns - alone.time_ns, other.low_ns - other.time_ns),
            (alone.high_ns - alone.time_ns, other.high_ns - other.time_ns),
        )
        below, above = (math.hypot(*(math.log1p(max(ns / whole.time_ns, -0.999)) for ns in each)) for each in shifts)
        provenance = min(whole.provenance, Provenance.PHYSICS)
        unknown = whole.unknown + self.exchange.time.unknown
        return Estimate.of(whole.time_ns, below, above, provenance, "step") + Estimate(unknown=unknown)

    @property
    def mfu_share(self) -> Annotated[float | None, Show("MFU")]:
        """Model FLOPs utilization; None where the peak of a dtype is not in the catalogue."""
        time = self.step_time.time_ns
        return self.peak_ns / time if time and not math.isnan(self.peak_ns) else None

    @property
    def shares(self) -> Shares:
        """The parts of the step."""
        bounds = by_bound(self.durations, [op for op, ns in enumerate(self.line.clocks.device) if ns])
        parts = (*(bounds.get(bound, 0) for bound in BOUNDS), self.line.waiting_ns, self.exchange.exposed_ns)
        whole = self.step_time.time_ns
        return Shares(*(ns / whole if whole else None for ns in parts))


def step_on(
    graph: Graph,
    where: Machines,
    *,
    durations: Durations | None = None,
    launch: Launch = "eager",
    resolver: Resolver | None = None,
) -> MachineStep:
    """Predict the step ``graph`` (without loops) on ``where``; ``durations`` are those of one device, if known.

    Raises TensortideError if the catalogue does not know a link that it needs.
    """
    durations = durations or estimate(graph, where.device, resolver=resolver)
    if where.size > 1 and any(moves_data(op.name) for op in graph):
        exchange, times = recorded_exchange(graph, where.joined)
        line = step_timeline(graph, with_times(durations, dict.fromkeys(times, Estimate())), where.device, launch)
        durations = with_times(durations, times)
    else:
        line = step_timeline(graph, durations, where.device, launch)
        exchange = gradient_exchange(line, where.joined) if where.size > 1 else NO_EXCHANGE
    return MachineStep(graph, where, durations, line, exchange, peak_ns(graph, where.device, resolver))


def with_times(durations: Durations, times: Mapping[int, Estimate]) -> Durations:
    """Replace the ``times`` of some ops of ``durations``, which are predicted."""
    if durations.forecast is None:
        return durations
    ns, rows, index = list(durations.ns), list(durations.forecast.rows), list(durations.forecast.index)
    for op, time in times.items():
        ns[op], index[op] = round(time.time_ns), len(rows)
        half = (
            (math.log(time.time_ns / time.low_ns), math.log(time.high_ns / time.time_ns))
            if time.time_ns
            else (0.0, 0.0)
        )
        rows.append(ForecastRow("collective", *half, time.provenance, "collective", "launch"))
    unknown = sum(rows[row].provenance is Provenance.UNKNOWN for row in index)
    forecast = msgspec.structs.replace(durations.forecast, rows=tuple(rows), index=tuple(index))
    return msgspec.structs.replace(durations, ns=tuple(ns), unknown=unknown, forecast=forecast)


def peak_ns(graph: Graph, device: Device, resolver: Resolver | None) -> float:
    """Nanoseconds of the products of ``graph`` at the dense peak of their dtypes, without recomputation; NaN where the
    catalogue does not have a peak."""
    flops = Counter[str]()
    for op, found in zip(graph, count(graph, resolver=resolver).costs, strict=True):
        if found.cost is not None and found.cost.macs and not op.op.recompute:
            active = found.cost.active_macs
            flops[compute_dtype(op.inputs or op.outputs)] += 2 * int(found.cost.macs if active is None else active)
    rates = {dtype: matrix_tflops(device, dtype) for dtype in flops}
    return sum(number / (1000 * (rates[dtype] or math.nan)) for dtype, number in flops.items())
