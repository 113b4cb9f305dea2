"""Times for ops that could not be measured: a roofline under the best rates that measured ops of the step reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensortide.cost import Resolver, count
from tensortide.errors import UnknownCost
from tensortide.graph.model import Graph
from tensortide.timing.catalogue import Device
from tensortide.timing.measurement import Ceilings
from tensortide.timing.roofline import estimate

__all__ = ["require_all", "stand_in"]

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


def _ceilings(graph: Graph, ns: Sequence[int | None]) -> Ceilings:
    costs = count(graph).costs
    timed = [(cost, time / 1e9) for cost, time in zip(costs, ns, strict=True) if time]
    flops = max((cost.cost.flops / s for cost, s in timed if cost.cost is not None), default=0.0)
    moved = [(int(cost.nbytes), s) for cost, s in timed if cost.nbytes]
    large = [(nbytes, s) for nbytes, s in moved if nbytes >= _LARGE]
    rate = max((nbytes / s for nbytes, s in large or moved), default=0.0)
    return Ceilings(flops or _NOWHERE.flops_per_s, rate or _NOWHERE.bytes_per_s)


def require_all(graph: Graph, unknown: Mapping[int, str]) -> None:
    """Raise UnknownCost, which names them, if there are ops of ``unknown`` duration."""
    if not unknown:
        return
    groups: dict[tuple[str, str], int] = {}
    for index, reason in unknown.items():
        key = (graph[index].name, reason)
        groups[key] = groups.get(key, 0) + 1
    lines = "\n".join(f"  {name} x{number}: {reason}" for (name, reason), number in groups.items())
    raise UnknownCost(f"{len(unknown)} ops have no measured duration:\n{lines}")
