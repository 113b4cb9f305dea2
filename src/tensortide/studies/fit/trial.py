"""A captured step in three figures: bytes at its peak, bytes that the allocator takes, time."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, NamedTuple

import msgspec

from tensortide.cost import Resolver
from tensortide.graph.model import Graph, Role
from tensortide.graph.unroll import unrolled
from tensortide.memory import reserve
from tensortide.shown import Show
from tensortide.timelines import timeline
from tensortide.timelines.step import step_ns, step_timeline
from tensortide.timing import Durations, estimate
from tensortide.timing.catalogue import Device
from tensortide.timing.collectives.nodes import LinkRates
from tensortide.timing.collectives.predict import collective
from tensortide.timing.links import LINKS, Link

_COPIES = ("aten._to_copy.default", "aten.copy_.default", "aten.to.device")


class Trial(msgspec.Struct, frozen=True):
    """Figures of a step on a device.

    ``peak_bytes`` is that of its Timeline, ``reserved_bytes`` what PyTorch's allocator takes for it from the device
    (equal to the peak for a CPU, whose allocator keeps nothing). ``step_ns`` is None on a card that nobody names.
    """

    peak_bytes: Annotated[int, Show("Peak")]
    reserved_bytes: Annotated[int, Show("Allocator", at_width=110)]
    step_ns: Annotated[int | None, Show("Step")]


def tried(
    graph: Graph, row: Device | None, *, durations: Durations | None = None, resolver: Resolver | None = None
) -> Trial:
    """The figures of ``graph`` on ``row``; its times are predicted if ``durations`` are not given, and None without a
    device."""
    graph = unrolled(graph)
    peak = timeline(graph).peak_bytes
    reserved = reserve(graph).peak_reserved if graph.index.main_device.startswith("cuda") else peak
    time = None if row is None else taken_ns(graph, row, durations=durations, resolver=resolver)
    return Trial(peak, reserved, time)


class Taken(NamedTuple):
    """The time of a step, with its 80 % interval; all None if it is not known."""

    ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None


def taken_ns(graph: Graph, row: Device, *, durations: Durations | None = None, resolver: Resolver | None = None) -> int:
    """Time of a step ``graph`` (without loops) on ``row``, issued eagerly; copies between devices take the link."""
    durations = _on(graph, row, durations, resolver)
    return sum(durations.ns) if durations.forecast is None else step_ns(graph, durations, row)  # the sum of measured


def taken(graph: Graph, row: Device, *, durations: Durations | None = None, resolver: Resolver | None = None) -> Taken:
    """The same, with its interval if it is predicted."""
    durations = _on(graph, row, durations, resolver)
    if durations.forecast is None:
        return Taken(sum(durations.ns))
    time = step_timeline(graph, durations, row).estimate
    ns = step_ns(graph, durations, row)
    return Taken(ns, round(time.low_ns), None if time.unknown else round(time.high_ns))


def _on(graph: Graph, row: Device, durations: Durations | None, resolver: Resolver | None) -> Durations:
    """Times of the ops on ``row``, predicted if they are not given: then copies between devices take the link."""
    durations = durations or estimate(graph, row, resolver=resolver)
    moved = _moved_ns(graph, _link(row)) if durations.forecast is not None else {}
    if not moved:
        return durations
    return msgspec.structs.replace(durations, ns=tuple(moved.get(op, ns) for op, ns in enumerate(durations.ns)))


def _link(row: Device) -> Link:
    """The link between ``row`` and its host, at the rate of the catalogue."""
    if row.pcie_gbytes_per_s is None:
        return LINKS["pcie4"]
    return Link("host", Fraction(row.pcie_gbytes_per_s) * 10**9, LINKS["pcie4"].latency_ns)


def _moved_ns(graph: Graph, link: Link) -> dict[int, int]:
    """The time of each op that copies from one device to another, over ``link``."""
    found = {}
    for number, (view, op) in enumerate(zip(graph, graph.ops, strict=True)):
        if view.name in _COPIES and op.outputs + op.inputs:
            tensors = [graph.tensors[index] for index in op.inputs + op.outputs]
            devices = {graph.storages[tensor.storage].device for tensor in tensors}
            if len(devices) > 1:
                found[number] = link.transfer_ns(min(tensor.nbytes for tensor in tensors))
    return found


def gathering_ns(graph: Graph, row: Device, devices: int, rates: LinkRates) -> int:
    """Time in which ``devices`` hand each other the parameters that each has updated, over links at ``rates``."""
    if devices == 1:
        return 0
    nbytes = sum(int(storage.nbytes) for storage in graph.storages if storage.role is Role.PARAMETER)
    each = -(-nbytes // devices)  # the largest share
    return round(collective("all_gather", each * devices, devices, rates.spread(row, devices)).time_ns)
