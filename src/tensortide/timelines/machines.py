"""A step on one of several machines that a person chooses between: its predicted time, rate, and use of the devices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec

from tensortide.cost import Resolver, count
from tensortide.graph.communication import moves_data
from tensortide.graph.model import Graph
from tensortide.graph.precision import InTf32, in_tf32
from tensortide.shown import Show
from tensortide.timelines.data_parallel import NO_EXCHANGE, Exchange, Exposed, gradient_exchange, recorded_exchange
from tensortide.timelines.step import Launch, StepTimeline, step_timeline
from tensortide.timing.catalogue import Device
from tensortide.timing.collectives import Nodes
from tensortide.timing.durations import Durations
from tensortide.timing.estimate import estimate
from tensortide.timing.estimates import BOUNDS, Estimate, Provenance
from tensortide.timing.families import compute_dtype
from tensortide.timing.forecast import ForecastRow
from tensortide.timing.rates import matrix_tflops
from tensortide.timing.totals import by_bound


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
    """The step ``graph`` on ``nodes``, each device of which takes the whole of ``line`` on data of its own."""

    graph: Graph
    nodes: Nodes
    durations: Durations
    line: StepTimeline
    exchange: Exchange
    peak_ns: float
    """Time of the step's products at the dense peak of their dtypes, without recomputation: its model FLOPs."""

    @property
    def machine(self) -> Annotated[str, Show("Machine")]:
        return str(self.nodes)

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
    nodes: Nodes,
    *,
    durations: Durations | None = None,
    launch: Launch = "eager",
    resolver: Resolver | None = None,
) -> MachineStep:
    """Predict the step ``graph`` (without loops) on ``nodes``; ``durations`` are those of one device, if known.

    Raises TensortideError if no NIC joins them.
    """
    durations = durations or estimate(graph, nodes.device, resolver=resolver)
    if nodes.size > 1 and any(moves_data(op.name) for op in graph):
        exchange, times = recorded_exchange(graph, nodes)
        line = step_timeline(graph, with_times(durations, dict.fromkeys(times, Estimate())), nodes.device, launch)
        durations = with_times(durations, times)
    else:
        line = step_timeline(graph, durations, nodes.device, launch)
        exchange = gradient_exchange(line, nodes) if nodes.size > 1 else NO_EXCHANGE
    return MachineStep(graph, nodes, durations, line, exchange, peak_ns(graph, nodes.device, resolver))


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
    flops, tf32 = Counter[tuple[str, bool]](), in_tf32(graph.meta)
    for op, found in zip(graph, count(graph, resolver=resolver).costs, strict=True):
        if found.cost is not None and found.cost.macs and not op.op.recompute:
            active = found.cost.active_macs
            kind: InTf32 = "convolutions" if "convolution" in op.name else "products"
            key = compute_dtype(op.inputs or op.outputs), kind in tf32
            flops[key] += 2 * int(found.cost.macs if active is None else active)
    rates = {key: matrix_tflops(device, key[0], tf32=key[1]) for key in flops}
    return sum(number / (1000 * (rates[key] or math.nan)) for key, number in flops.items())
