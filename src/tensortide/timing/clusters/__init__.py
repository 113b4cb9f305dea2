"""Clusters: devices of any kinds, the links between them, the channels that carry what moves; and their files."""

from __future__ import annotations

from tensortide.timing.clusters.cluster import (
    Channel,
    Cluster,
    ClusterDevice,
    ClusterLink,
    Tier,
    Wire,
    both_ways,
    joined,
)
from tensortide.timing.clusters.device_graphs import read_device_graph
from tensortide.timing.clusters.file import load_cluster

__all__ = [
    "Channel",
    "Cluster",
    "ClusterDevice",
    "ClusterLink",
    "Tier",
    "Wire",
    "both_ways",
    "joined",
    "load_cluster",
    "read_device_graph",
]
