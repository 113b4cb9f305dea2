"""Times for ops that could not be measured: a roofline under the best rates that measured ops of the step reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensortide.cost import Resolver, count
from tensortide.errors import UnknownCost
from tensortide.graph.model import Graph
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Ceilings, Durations, Measurement, identity, sample
from tensortide.timing.estimate import estimate
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import compute_dtype

_LARGE = 1 << 20
"""Bytes from which on an op's duration reveals the memory's bandwidth."""

_NOWHERE = Ceilings(1e11, 1e10)
"""Rates of one core, where nothing was measured that has any."""


def stand_in(
    graph: Graph, ns: Sequence[int | None], *, resolver: Resolver | None = None
) -> tuple[tuple[int, ...], Ceilings]:
    """``ns`` with an estimate in place of every None, and the ceilings that it is under."""
    found = _ceilings(graph, ns)
    if None not in ns:
        return tuple(time for time in ns if time is not None), found
    roof = Device(
        name="the fastest measured ops",
        kind="cpu",
        memory_gbytes_per_s=found.bytes_per_s / 1e9,
        fp32_tflops=found.flops_per_s / 1e12,
        fp64_tflops=found.flops_per_s / 2e12,
    )
    estimated = estimate(graph, roof, resolver=resolver)
    filled = tuple(other if time is None else time for time, other in zip(ns, estimated.ns, strict=True))
    return filled, found


def from_samples(
    graph: Graph,
    samples: Sequence[Sequence[float]],
    *,
    missing: Callable[[int], str],
    source: str,
    resolver: Resolver | None,
    **how: Any,
) -> Durations:
    """Durations of ``graph``'s ops by the medians of ``samples``, recorded in ``source``; an op without any is unknown,
    its time a stand-in and ``missing`` gives the reason. ``how`` are the other facts of the Measurement."""
    summaries = [sample(times) if times else None for times in samples]
    ns, ceilings = stand_in(graph, [None if s is None else s.median_ns for s in summaries], resolver=resolver)
    unknown = {index: missing(index) for index, s in enumerate(summaries) if s is None}
    measurement = Measurement(
        min_ns=tuple(0 if s is None else s.min_ns for s in summaries),
        p90_ns=tuple(0 if s is None else s.p90_ns for s in summaries),
        samples=tuple(map(len, samples)),
        stand_ins=unknown,
        ceilings=ceilings if unknown else None,
        **how,
    )
    return Durations(ns, f"recorded in {source}", "recorded", len(unknown), identity(graph), measurement)


def _ceilings(graph: Graph, ns: Sequence[int | None]) -> Ceilings:
    costs = count(graph).costs
    timed = [(cost, time / 1e9) for cost, time in zip(costs, ns, strict=True) if time]
    flops = max((cost.cost.flops / s for cost, s in timed if cost.cost is not None), default=0.0)
    moved = [(int(cost.nbytes), s) for cost, s in timed if cost.nbytes]
    large = [(nbytes, s) for nbytes, s in moved if nbytes >= _LARGE]
    rate = max((nbytes / s for nbytes, s in large or moved), default=0.0)
    return Ceilings(flops or _NOWHERE.flops_per_s, rate or _NOWHERE.bytes_per_s)


def unpredicted(graph: Graph, durations: Durations) -> dict[int, str]:
    """Return why the times of ops are not predicted, by op."""
    if durations.forecast is None:
        return {}
    rows = [durations.forecast.rows[row] for row in durations.forecast.index]
    missing = [op for op, row in zip(graph, rows, strict=True) if row.provenance is Provenance.UNKNOWN]
    return {op.index: f"no time of {compute_dtype(op.inputs or op.outputs)} on this device" for op in missing}


def require_all(graph: Graph, unknown: Mapping[int, str]) -> None:
    """Raise UnknownCost, which names them, if there are ops of ``unknown`` duration."""
    if not unknown:
        return
    groups = Counter((graph[index].name, reason) for index, reason in unknown.items())
    lines = "\n".join(f"  {name} x{number}: {reason}" for (name, reason), number in groups.items())
    raise UnknownCost(f"{len(unknown)} ops have no known time:\n{lines}")
