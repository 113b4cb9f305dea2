"""Hosts of the devices of a cluster: each device has a process of its own, whose thread issues its ops in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tensortide.graph.effects import reads_value
from tensortide.graph.model import Graph, Role
from tensortide.placements.graphs.closures import SCALAR_BYTES, Sets, makers_of
from tensortide.placements.graphs.placeable import continues_list
from tensortide.timelines.step import HostModel, OpTimes, clocks, launches_once
from tensortide.timing.clusters import Cluster
from tensortide.timing.durations import Durations

Launch: TypeAlias = Literal["eager", "graph", "none"]
"""How a host issues ops: one by one, in graphs captured before, or in no time."""


class HostTimes(NamedTuple):
    """Times of the hosts, ns, by device and op: ``issue`` is what an op takes its host, ``after`` what it works after
    an op on a device that is the host itself, ``waits`` whether it waits for the op. ``launch``: by device, before its
    first op and after each that it waits for. ``listed``: the number of each op among ops over lists, whose entries a
    device has issued together; -1 for others."""

    issue: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    waits: tuple[tuple[bool, ...], ...]
    launch: tuple[int, ...]
    listed: tuple[int, ...]

    def without(self, ops: Collection[int]) -> HostTimes:
        """The same, but that ``ops`` take the hosts no time: hooks of gradients launch them beside the others."""
        if not ops:
            return self
        columns = ([tuple(0 if op in ops else ns for op, ns in enumerate(each)) for each in by] for by in self[:3])
        issue, after, waits = columns
        return self._replace(issue=tuple(issue), after=tuple(after), waits=tuple(tuple(map(bool, w)) for w in waits))


def no_hosts(devices: int, ops: int) -> HostTimes:
    """Times of hosts that issue all ops in no time."""
    none = ((0,) * ops,) * devices
    return HostTimes(none, none, ((False,) * ops,) * devices, (0,) * devices, (-1,) * ops)


def host_times(
    graph: Graph, cluster: Cluster, durations: Sequence[Durations], launch: Launch
) -> tuple[list[OpTimes], HostTimes]:
    """The times of the ops of ``graph`` on each device of ``cluster`` as ``timelines.step`` plays them, and those of
    their hosts. ``durations``: of each device.

    One device in recorded order has the Timeline of ``step_timeline``, but for the times of the entries of lists.
    """
    found: list[OpTimes] = []
    launches: list[int] = []
    known: dict[tuple[int, str], OpTimes] = {}
    name = graph.index.main_device
    for device, times in zip(cluster.devices, durations, strict=True):
        host = HostModel.of(device.row, "graph" if launch == "graph" else "eager")
        key = id(times), device.row.kind
        if key not in known:
            known[key] = clocks(graph, times, host, name)
        once = bool(host.issue_ns) and launches_once(graph, host)
        launches.append(host.issue_ns if once else 0)
        found.append(known[key]._replace(host=(0,) * len(graph)) if once else known[key])
    columns = ([tuple(map(int, column)) for column in each] for each in zip(*found, strict=True))
    issue, _, waits, after = columns
    return found, HostTimes(tuple(issue), tuple(after), tuple(waits), tuple(launches), _listed(graph))  # type: ignore[arg-type]


def _listed(graph: Graph) -> tuple[int, ...]:
    found: list[int] = []
    number, before = -1, ""
    for op in graph.ops:
        call = graph.calls[op.call]
        follows = continues_list(call) and call.op == before
        if follows and found[-1] < 0:
            number += 1
            found[-1] = number
        found.append(number if follows else -1)
        before = call.op
    return tuple(found)


# -- ops of the host --------------------------------------------------------------------------------
# Ops that only the host can run: they hand a value to the program, or work on tensors in the host's memory.  An op
# whose result has a size that depends on values (``nonzero``, an index with a mask, ``unique``) is none of them: it
# runs on a device, and the host of that device waits for it.


_READS = ("aten._local_scalar_dense.default", "aten.item.default")
"""Reads of a value by name: steps that other tools recorded have no tags."""


def value_reads(graph: Graph) -> tuple[int, ...]:
    """The ops that hand the one element of a tensor to the program and make nothing else.

    What an op computes from more than that (whether two tensors are equal) it computes on a device.
    """
    return tuple(
        view.index
        for view in graph
        if not view.outputs
        and (view.name in _READS or (reads_value(view) and all(tensor.numel <= 1 for tensor in view.inputs)))
    )


def host_ops(graph: Graph) -> tuple[int, ...]:
    """The value reads, and in a step of another device the ops that touch nothing but tensors of the host.

    A scalar of the optimizer's state (its count of steps) lies on the host in any case, and what reads it goes with its
    parameter; so do scalars that the host makes for others.
    """
    main, reads = graph.index.main_device, {*value_reads(graph)}
    found = []
    for op in range(len(graph)):
        touched = [graph.storages[storage] for storage in graph.index.touches[op]]
        if all(held.role is Role.OPTIMIZER_STATE and held.nbytes <= SCALAR_BYTES for held in touched):
            continue
        elsewhere = main != "cpu" and all(held.device == "cpu" for held in touched)
        if op in reads or (elsewhere and any(held.nbytes > SCALAR_BYTES for held in touched)):
            found.append(op)
    return tuple(found)


def bound_to_host(graph: Graph) -> frozenset[int]:
    """The ops of ``host_ops`` with all that allocate, view or write a storage that one of them does: the copy of a
    gradient in the host's memory that the host then scales."""
    sets = Sets(len(graph))
    for ops in makers_of(graph):
        for op in ops[1:]:
            sets.join(ops[0], op)
    bound = {sets.find(op) for op in host_ops(graph)}
    return frozenset(op for op in range(len(graph)) if sets.find(op) in bound)
