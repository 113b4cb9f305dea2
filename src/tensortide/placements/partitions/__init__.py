"""Partitioning of a graph of ops for throughput: the published node and edge files, and their max-load objective."""

from __future__ import annotations

from tensortide.placements.partitions.problem import PartitionProblem
from tensortide.placements.partitions.workload import Edge, Node, Workload, read_split, read_workload

__all__ = ["Edge", "Node", "PartitionProblem", "Workload", "read_split", "read_workload"]
