"""Device graphs of networks as clusters of captured steps, and back: the same devices and links in the other form."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from tensortide.errors import TensortideError
from tensortide.placements.device_graphs import Channel, DeviceGraph, Neighbour
from tensortide.placements.device_graphs import Device as GraphDevice
from tensortide.placements.graphs.machine import ClusterDevice, Connection, DeviceCluster
from tensortide.timing.catalogue import Device
from tensortide.timing.machine import Link

_PEAKS = {"float64": "fp64_tflops", "float16": "fp16_tflops", "bfloat16": "bf16_tflops"}
"""Rates of the catalogue by the name of their dtype in ``peaks`` of a device graph; fp32 has a key of its own."""


def as_cluster(graph: DeviceGraph) -> DeviceCluster:
    """The cluster of ``graph``: devices by their names, or ``cpu0``, ``gpu1``, ... by their numbers; links that share a
    channel in one queue.

    Raises TensortideError for what such a cluster cannot have: a switch, a link without one back, and one that starts
    later one way than the other.
    """
    devices = tuple(_row(number, device) for number, device in enumerate(graph.devices))
    pairs = {(i, n.device) for i, device in enumerate(graph.devices) for n in device.neighbours}
    joined = sorted({(min(pair), max(pair)) for pair in pairs})
    return DeviceCluster(graph.name, devices, tuple(_connection(graph, a, b) for a, b in joined))


def _row(number: int, device: GraphDevice) -> ClusterDevice:
    if device.type == "switch":
        raise TensortideError(
            f"device {number} is a switch, which clusters of captured steps do not have: link its devices to each other"
        )
    unknown = sorted(device.peaks.keys() - _PEAKS.keys())
    if unknown:
        raise TensortideError(f"device {number} has a peak of {unknown[0]!r}: steps know {', '.join(_PEAKS)}")
    row = Device(
        name=device.model,
        kind=device.type,
        fp32_tflops=device.peak_gflops / 1e3,
        memory_gbytes=device.memory or None,
        memory_gbytes_per_s=device.mem_bandwidth,
    )
    row = msgspec.structs.replace(row, **{_PEAKS[dtype]: gflops / 1e3 for dtype, gflops in device.peaks.items()})
    name = device.id if isinstance(device.id, str) else f"{device.type}{number}"
    return ClusterDevice(name, row, int(device.memory * 1e9))


def _connection(graph: DeviceGraph, a: int, b: int) -> Connection:
    """Both ways between two devices; the queues of a channel are 2c and, downwards if it is duplex, 2c + 1."""
    there, back = graph.link(a, b), graph.link(b, a)
    if there is None or back is None:
        first, second = (b, a) if there is None else (a, b)
        raise TensortideError(f"device {first} is linked to {second} with no link back, which a step needs")
    out, into = graph.channels[there], graph.channels[back]
    if out.latency_us != into.latency_us:
        raise TensortideError(
            f"latency_us is {out.latency_us:g} from device {a} to {b} and {into.latency_us:g} back: steps take one"
        )
    rate, back_rate = _bytes_per_s(out), _bytes_per_s(into)
    link = Link(
        out.type or f"channel {there}",
        rate,
        round(out.latency_us * 1000),
        f"{float(rate) / 1e9:g} GB/s + {out.latency_us:g} us",
        None if rate == back_rate else back_rate,
    )
    buses = 2 * there, 2 * back + into.duplex
    return Connection(a, b, link, buses[0] != buses[1], buses)


def _bytes_per_s(channel: Channel) -> Fraction:
    return Fraction(channel.bandwidth) * 10**9 / 8


def as_device_graph(cluster: DeviceCluster) -> DeviceGraph:
    """The device graph of ``cluster``: a channel for each link, or for each way of one with two speeds. Devices keep
    their names.

    Raises TensortideError where a device has no fp32 rate or no known memory, which layers need, and for links whose
    ways share a queue at two speeds.
    """
    channels: list[Channel] = []
    neighbours: list[list[Neighbour]] = [[] for _ in cluster.devices]
    for each in cluster.connections:
        there = back = len(channels)
        inwards = each.link.in_bytes_per_s
        if inwards is None or inwards == each.link.bytes_per_s:
            channels.append(_channel(each, each.link.bytes_per_s, each.duplex))
        else:
            if not each.duplex:
                names = " and ".join(repr(cluster.devices[end].name) for end in (each.a, each.b))
                raise TensortideError(f"the link of {names} has two speeds and one queue, which layers cannot have")
            back += 1
            channels += [_channel(each, rate, duplex=False) for rate in (each.link.bytes_per_s, inwards)]
        neighbours[each.a].append(Neighbour(each.b, there))
        neighbours[each.b].append(Neighbour(each.a, back))
    devices = [_device(device, tuple(near)) for device, near in zip(cluster.devices, neighbours, strict=True)]
    return DeviceGraph(cluster.name, tuple(channels), tuple(devices))


def _channel(each: Connection, bytes_per_s: Fraction, duplex: bool) -> Channel:
    return Channel(
        bandwidth=float(bytes_per_s * 8 / 10**9),
        type=each.link.name,
        latency_us=each.link.latency_ns / 1000,
        duplex=duplex,
    )


def _device(device: ClusterDevice, neighbours: tuple[Neighbour, ...]) -> GraphDevice:
    row = device.row
    if row.fp32_tflops is None:
        raise TensortideError(f"{row.name!r} ({device.name}) has no fp32_tflops, which layers are timed by")
    if device.capacity_bytes is None:
        raise TensortideError(f"the memory of {device.name!r} is not known: give its 'memory'")
    cores = row.compute_units or 1 if row.kind == "cpu" else 1
    rates = {dtype: getattr(row, key) for dtype, key in _PEAKS.items()}
    return GraphDevice(
        model=row.name,
        clock=(row.boost_mhz or 0.0) * cores,
        peak_gflops=row.fp32_tflops * 1e3,
        memory=device.capacity_bytes / 1e9,
        mem_bandwidth=row.memory_gbytes_per_s,
        type="cpu" if row.kind == "cpu" else "gpu",
        id=device.name,
        neighbours=neighbours,
        peaks={dtype: rate * 1e3 for dtype, rate in rates.items() if rate is not None},
    )
