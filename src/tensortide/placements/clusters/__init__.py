"""Device graphs: devices, the channels between them, and the routes that transfers take."""

from __future__ import annotations

from tensortide.placements.clusters.cluster import Channel, Cluster, Device, Neighbour, read_cluster
from tensortide.placements.clusters.routes import Hop, Wiring, wiring

__all__ = ["Channel", "Cluster", "Device", "Hop", "Neighbour", "Wiring", "read_cluster", "wiring"]
