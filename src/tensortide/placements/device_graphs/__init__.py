"""Device graphs: devices, the channels between them, and the routes that transfers take."""

from __future__ import annotations

from tensortide.placements.device_graphs.device_graph import Channel, Device, DeviceGraph, Neighbour, read_device_graph
from tensortide.placements.device_graphs.routes import Hop, Wiring, wiring

__all__ = ["Channel", "Device", "DeviceGraph", "Hop", "Neighbour", "Wiring", "read_device_graph", "wiring"]
