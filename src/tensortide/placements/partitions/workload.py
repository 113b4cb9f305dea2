"""Workloads of dnn-partitioning (NeurIPS 2020) in JSON: nodes with latencies and sizes, edges with a cost, devices."""

from __future__ import annotations

import functools
import graphlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.json_file import read_json

_SAME_COST = 1e-6
"""Costs of the edges out of a node that differ by less are the same."""


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A layer or op: its time per sample (ms) on a CPU core and on an accelerator, and its bytes on an accelerator.

    Nodes of one ``color_class`` share a device. ``supported_on_fpga`` is False for those that run on CPUs alone.
    """

    id: int
    cpu_latency: float
    fpga_latency: float
    supported_on_fpga: bool | int = True
    size: float = 0.0
    is_backward_node: bool | int = False
    color_class: int | None = None
    name: str = ""


class Edge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A dependency. ``cost``: time to move the source's output between an accelerator and the host's memory, ms."""

    source_id: int
    dest_id: int
    cost: float


class _File(msgspec.Struct, kw_only=True):
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    bytes_per_accelerator: float = msgspec.field(name="maxSizePerFPGA")
    accelerators: int = msgspec.field(name="maxFPGAs")
    cpus: int = msgspec.field(name="maxCPUs")


class Workload(msgspec.Struct, frozen=True, dict=True):
    """A graph of nodes to be spread over ``cpus`` CPU cores and ``accelerators`` of a size each."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    cpus: int
    accelerators: int
    bytes_per_accelerator: float

    @property
    def devices(self) -> int:
        """Number of devices: CPU cores first, then accelerators."""
        return self.cpus + self.accelerators

    @functools.cached_property
    def costs(self) -> Mapping[int, float]:
        """Cost of moving the output of each node that has readers, by its id."""
        return {edge.source_id: edge.cost for edge in self.edges}

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """Positions of the nodes in topological order."""
        index = {node.id: i for i, node in enumerate(self.nodes)}
        sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter(dict.fromkeys(range(len(self.nodes)), ()))
        for edge in self.edges:
            sorter.add(index[edge.dest_id], index[edge.source_id])
        return tuple(sorter.static_order())


def read_workload(path: str | os.PathLike[str]) -> Workload:
    """Read a workload.

    Raises:
        TensortideError: the file cannot be read or is no workload; ids stand twice or do not exist; nodes form a cycle;
            a time or size is below zero; edges out of a node have different costs.
    """
    file = read_json(path, _File, "a workload of nodes and edges")
    name = Path(path).stem
    for fault in _faults(file):
        raise TensortideError(f"{path}: {fault}.")
    found = Workload(name, file.nodes, file.edges, file.cpus, file.accelerators, file.bytes_per_accelerator)
    try:
        found.order  # noqa: B018
    except graphlib.CycleError as error:
        cycle = " -> ".join(str(found.nodes[i].id) for i in error.args[1])
        raise TensortideError(f"{path}: nodes form a cycle: {cycle}.") from None
    return found


def is_workload(path: Path) -> bool:
    """Tell whether ``path`` is a file that names the devices of a workload."""
    try:
        return path.suffix.lower() == ".json" and b'"maxFPGAs"' in path.read_bytes()
    except OSError:
        return False


def _faults(file: _File) -> Iterator[str]:
    if not file.nodes:
        yield "there are no nodes"
    if file.cpus < 0 or file.accelerators < 0 or file.cpus + file.accelerators < 1:
        yield f"maxCPUs is {file.cpus} and maxFPGAs {file.accelerators}: 0 or more each, and one device at least"
    if not 0 <= file.bytes_per_accelerator < math.inf:
        yield f"maxSizePerFPGA is {file.bytes_per_accelerator}: 0 or more"
    ids: set[int] = set()
    yield from _node_faults(file, ids)
    costs: dict[int, float] = {}
    for edge in file.edges:
        for end in (edge.source_id, edge.dest_id):
            if end not in ids:
                yield f"an edge leads from {edge.source_id} to {edge.dest_id}: there is no node {end}"
        if not 0 <= edge.cost < math.inf:
            yield f"the edge from {edge.source_id} to {edge.dest_id} costs {edge.cost}: 0 or more"
        if abs(costs.setdefault(edge.source_id, edge.cost) - edge.cost) > _SAME_COST:
            yield f"edges out of node {edge.source_id} have different costs: one output is moved once"


def _node_faults(file: _File, ids: set[int]) -> Iterator[str]:
    """Describe what is wrong with nodes, and collect their ids."""
    for node in file.nodes:
        if node.id in ids:
            yield f"two nodes have the id {node.id}"
        ids.add(node.id)
        if not all(0 <= number < math.inf for number in (node.cpu_latency, node.fpga_latency, node.size)):
            yield f"node {node.id}: cpuLatency, fpgaLatency and size are 0 or more, and finite"
        if not node.supported_on_fpga and not file.cpus:
            yield f"node {node.id} runs on CPUs alone, and maxCPUs is 0"


class _Part(msgspec.Struct):
    nodes: tuple[int, ...]


class _Split(msgspec.Struct):
    cpus: tuple[_Part, ...]
    fpgas: tuple[_Part, ...]


def split_text(workload: Workload, devices: Sequence[int]) -> str:
    """The text of a split that ``read_split`` reads: ``devices`` are those of the nodes, in the order of the file."""
    parts: list[list[int]] = [[] for _ in range(workload.devices)]
    for node, device in zip(workload.nodes, devices, strict=True):
        parts[device].append(node.id)
    named = [{"nodes": part} for part in parts]
    return json.dumps({"cpus": named[: workload.cpus], "fpgas": named[workload.cpus :]}) + "\n"


def read_split(path: str | os.PathLike[str], workload: Workload) -> dict[int, int]:
    """Read a split, as the published programs write one: the device of each node by its id.

    A backward node that is missing is where the forward nodes of its colour class are.

    Raises:
        TensortideError: the file cannot be read, is no split, or is one of another workload or for more devices.
    """
    file = read_json(path, _Split, "a split of nodes over CPUs and accelerators")
    if len(file.cpus) > workload.cpus or len(file.fpgas) > workload.accelerators:
        raise TensortideError(
            f"{path}: a split over {len(file.cpus)} CPUs and {len(file.fpgas)} accelerators; {workload.name} has"
            f" {workload.cpus} and {workload.accelerators}."
        )
    found: dict[int, int] = {}
    for first, parts in ((0, file.cpus), (workload.cpus, file.fpgas)):
        for number, part in enumerate(parts):
            found |= dict.fromkeys(part.nodes, first + number)
    of_class = {node.color_class: found[node.id] for node in workload.nodes if node.id in found}
    of_class.pop(None, None)
    for node in workload.nodes:
        if node.id not in found and node.color_class in of_class:
            found[node.id] = of_class[node.color_class]
    missing = [node.id for node in workload.nodes if node.id not in found]
    unknown = sorted(set(found) - {node.id for node in workload.nodes})
    if missing or unknown:
        raise TensortideError(
            f"{path}: a split of another workload: {len(missing)} nodes are missing, {len(unknown)} do not exist"
            f" (first: {(missing + unknown)[0]})."
        )
    return found
