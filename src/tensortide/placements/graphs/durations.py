"""Times of a step's ops on every device of a cluster, whose types may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tensortide.graph.model import Graph
from tensortide.placements.graphs.hosts import HostTimes, Launch, host_times
from tensortide.timing.catalogue import Device
from tensortide.timing.clusters import Cluster
from tensortide.timing.durations import Durations
from tensortide.timing.estimate import estimate
from tensortide.timing.estimates import Provenance


class OpDurations(NamedTuple):
    """For each device the time ``ns`` of each op, the count of ops whose time is ``unknown`` (that of their bytes
    stands in), which ops these are as far as predictions tell (``stand_ins``), the ``source`` of the times, and what
    the ops take the ``hosts`` (None: nothing)."""

    ns: tuple[tuple[int, ...], ...]
    unknown: tuple[int, ...]
    stand_ins: tuple[frozenset[int], ...]
    source: tuple[str, ...]
    hosts: HostTimes | None = None


def op_times(
    graph: Graph, cluster: Cluster, known: Mapping[str, Durations] | None = None, launch: Launch = "none"
) -> OpDurations:
    """The times of the ops of ``graph`` on each device: those ``known`` by the name of the device or of its type, else
    predicted. A view takes no time of a device other than a CPU: it launches nothing. ``launch``: how hosts issue ops.

    Raises GraphError if known ones are of another graph.
    """
    found: dict[str, Durations] = {}
    for device in cluster.devices:
        times = (known or {}).get(device.name) or (known or {}).get(device.row.name)
        if times is not None:
            times.check(graph)
            found[device.name] = times
    predicted: dict[Device, Durations] = {}
    views = [view.is_view for view in graph]
    columns, unknown, stand_ins, sources = [], [], [], []
    for device in cluster.devices:
        row = device.row
        if device.name not in found:
            if row not in predicted:
                predicted[row] = estimate(graph, row)
            found[device.name] = predicted[row]
        durations = found[device.name]
        launches = row.kind != "cpu" and durations.forecast is not None
        columns.append(tuple(0 if launches and view else ns for ns, view in zip(durations.ns, views, strict=True)))
        unknown.append(durations.unknown)
        stand_ins.append(_stand_ins(durations))
        sources.append(durations.source)
    hosts = None
    if launch != "none":
        played, hosts = host_times(graph, cluster, [found[device.name] for device in cluster.devices], launch)
        columns = [tuple(each.device) for each in played]
    return OpDurations(tuple(columns), tuple(unknown), tuple(stand_ins), tuple(sources), hosts)


def _stand_ins(durations: Durations) -> frozenset[int]:
    forecast = durations.forecast
    if forecast is None:
        return frozenset()
    return frozenset(op for op, row in enumerate(forecast.index) if forecast.rows[row].provenance is Provenance.UNKNOWN)
