"""The tables that the simulator reads: a step, its units and a cluster as flat arrays, made once for all placements."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensortide.errors import GraphError
from tensortide.graph.model import Graph
from tensortide.memory.lifetimes import Residence, Rule, residences
from tensortide.memory.workspace import Workspace, workspace_bytes
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.device_libraries import Libraries, libraries_of
from tensortide.placements.graphs.exchanges import Beside, exchange_table
from tensortide.placements.graphs.hosts import HostTimes, no_hosts
from tensortide.placements.graphs.kernel.records import Tables
from tensortide.placements.graphs.units import Units
from tensortide.placements.graphs.values import GIVEN, Values, values_of
from tensortide.timing.clusters import Cluster


@dataclass(frozen=True)
class Step:
    """A step ready to be placed: ``units`` of a graph on ``cluster``, with the time of each op on each device (ops
    times devices), and the ``tables`` of it. ``rule`` says when storages are released, ``beside`` which collectives run
    beside the ops of their device. ``issue_ns``: what each op takes the host of each device, of ops over lists an even
    share of what all entries take. ``libraries``: what libraries keep on each device that runs ops of theirs."""

    units: Units
    values: Values
    cluster: Cluster
    ns: NDArray[np.int64]
    rule: Rule
    tables: Tables
    issue_ns: NDArray[np.float64]
    libraries: Libraries
    beside: Beside | None = None

    @functools.cached_property
    def computes(self) -> NDArray[np.bool_]:
        """For each op whether it occupies its device: all but exchanges that run beside the others."""
        alone: NDArray[np.bool_] = self.tables.exchanges.number < 0
        return alone

    @functools.cached_property
    def released(self) -> NDArray[np.bool_]:
        """For each storage of the tables whether the step releases it."""
        ends: NDArray[np.bool_] = np.diff(self.tables.users_at) > 0
        return ends

    @functools.cached_property
    def computing_ns(self) -> NDArray[np.int64]:
        """The time for which each op occupies each device [ops, devices]."""
        return np.where(self.computes[:, None], self.ns, 0)

    @property
    def graph(self) -> Graph:
        return self.units.graph

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.cluster)


def step_of(
    units: Units,
    cluster: Cluster,
    durations_ns: Sequence[Sequence[int]],
    *,
    rule: Rule = "last_use",
    workspace: Workspace = True,
    staging: bool = False,
    beside: Beside | None = None,
    hosts: HostTimes | None = None,
) -> Step:
    """Prepare ``units`` for ``cluster``. ``durations_ns``: for each device the time of each op.

    ``rule``: when a storage is released, see ``memory.lifetimes``; under ``eager`` that is once the op has run before
    which the recorded step released it. ``staging``: a transfer holds a second buffer on its source while it leaves.
    ``beside``: all-reduces of gradients that do not occupy their device. ``hosts``: what ops take the hosts of devices;
    None: nothing.

    Raises GraphError for durations and a workspace that do not fit.
    """
    graph = units.graph
    if len(durations_ns) != len(cluster) or any(len(times) != len(graph) for times in durations_ns):
        raise GraphError(f"durations must be {len(cluster)} times {len(graph)}: of each device and each op")
    ns = np.array(durations_ns, np.int64).reshape(len(cluster), len(graph)).T.copy()
    if ns.size and ns.min() < 0:
        raise GraphError("durations cannot be less than 0 ns")
    values = values_of(graph)
    extra = workspace_bytes(graph, graph.index.main_device, workspace)
    if len(extra) != len(graph):
        raise GraphError(f"the workspace of {len(extra)} ops is given, and the step has {len(graph)}")
    hosts = (hosts or no_hosts(len(cluster), len(graph))).without(() if beside is None else beside.ops)
    libraries = libraries_of(units, cluster)
    tables = Tables(
        **_of_ops(units, values, ns, extra),
        **_of_values(values, cluster),
        **_of_storages(units, rule, beside),
        queue=_ints(cluster.queues),
        **_lists("route", [way for ways in cluster.routes for way in ways]),
        staged=int(staging),
        **_of_hosts(hosts, len(graph)),
        **_lists("handle_units", libraries.units),
        handle_bytes=libraries.nbytes.reshape(-1),
        exchanges=exchange_table(graph, beside, len(cluster), len(cluster.wires)),
    )
    return Step(units, values, cluster, ns, rule, tables, _shares(hosts), libraries, beside)


def _shares(hosts: HostTimes) -> NDArray[np.float64]:
    """Nanoseconds of each host for each op [ops, devices]; the entries of a list share those of one op."""
    listed = np.array(hosts.listed, np.int64)
    issue = np.array(hosts.issue, np.float64).reshape(len(hosts.issue), len(listed)).T
    of_list = listed >= 0
    issue[of_list] /= np.bincount(listed[of_list])[listed[of_list], None] if of_list.any() else 1
    return issue


def _of_ops(units: Units, values: Values, ns: NDArray[np.int64], workspace: Ints) -> dict[str, Any]:
    """The columns by op."""
    graph = units.graph
    made = [sum(int(graph.storages[storage].nbytes) for storage in own) for own in graph.index.allocated]
    return {
        "unit": _ints(units.of_op),
        "ns": np.ascontiguousarray(ns).reshape(-1),
        **_lists("reads", values.reads),
        **_lists("writes", values.writes),
        **_lists("makers", _makers(graph)),
        "workspace": workspace.astype(np.int64),
        "taken": _ints(made) + workspace.astype(np.int64),
    }


def _of_values(values: Values, cluster: Cluster) -> dict[str, Any]:
    """The columns by value."""
    every, before = values.values, [-1] * len(values.values)
    for number, value in enumerate(every):
        if value.next >= 0:
            before[value.next] = number
    given = [i for i, value in enumerate(every) if value.writer == GIVEN and value.readers]
    given.sort(key=lambda i: (every[i].readers[0], i))
    sizes = sorted({value.nbytes for value in every})
    times = {size: [lane.transfer_ns(size) for lane in cluster.wires] for size in sizes}
    send_ns = [[0] * len(cluster.wires) if value.free else times[value.nbytes] for value in every]
    return {
        "writer": _ints(value.writer for value in every),
        "storage_of": _ints(value.storage for value in every),
        "before": _ints(before),
        "copy_bytes": _ints(value.nbytes for value in every),
        "free": _ints(value.free for value in every),
        **_lists("readers", [value.readers for value in every]),
        "given": _ints(given),
        "sending": _ints((*given, *(i for i, value in enumerate(every) if value.writer != GIVEN))),
        "send_ns": np.array(send_ns, np.int64).reshape(-1),
    }


def _of_storages(units: Units, rule: Rule, beside: Beside | None) -> dict[str, Any]:
    """The columns by storage, those of the graph and then the buffers of exchanges, which are never released."""
    graph, buffers = units.graph, () if beside is None else beside.exchanges
    return {
        "home": _ints((*units.home, *(units.of_op[each.op] for each in buffers))),
        "nbytes": _ints((*(int(held.nbytes) for held in graph.storages), *(each.buffer_bytes for each in buffers))),
        **_lists("users", [*_users(graph, rule), *(() for _ in buffers)]),
        "early": _ints((*_early(graph, rule), *(1 for _ in buffers))),
    }


def _of_hosts(hosts: HostTimes, ops: int) -> dict[str, Any]:
    """The times of hosts."""
    return {
        "hosts": int(any(hosts.launch) or any(map(any, hosts.issue)) or any(map(any, hosts.after))),
        "issue": _by_op(hosts.issue, ops),
        "busy_after": _by_op(hosts.after, ops),
        "waits": _by_op(hosts.waits, ops),
        "launch": _ints(hosts.launch),
        "listed": _ints(hosts.listed),
    }


def _early(graph: Graph, rule: Rule) -> Iterator[bool]:
    """Yield for each storage whether it is resident when the step begins."""
    for held, residence in zip(graph.storages, residences(graph), strict=True):
        yield held.birth is None and (residence is not Residence.NEVER if rule == "last_use" else held.death != 0)


def _by_op(columns: Sequence[Sequence[int]], ops: int) -> Ints:
    """Numbers by device and op as op times devices, flat."""
    return np.array(columns, np.int64).reshape(len(columns), ops).T.reshape(-1).copy()


def _users(graph: Graph, rule: Rule) -> list[tuple[int, ...]]:
    """List the ops that touch each storage before it is released; none if it never is.

    Under ``eager`` the op before the recorded release counts as one that touches the storage.
    """
    found: list[tuple[int, ...]] = []
    for held, residence, own in zip(graph.storages, residences(graph), graph.index.users, strict=True):
        if held.death is None if rule == "eager" else residence is not Residence.LOCAL:
            found.append(())
        elif rule == "eager" and held.death and held.death - 1 not in own:
            found.append((*own, held.death - 1))
        else:
            found.append(tuple(own))
    return found


def _makers(graph: Graph) -> list[tuple[int, ...]]:
    """For each op those that make a view which it uses and no storage's version stands for."""
    owner, made = graph.index.owner, dict[int, int]()
    found: list[tuple[int, ...]] = []
    for op, (record, writes) in enumerate(zip(graph.ops, graph.index.writes, strict=True)):
        found.append(tuple(dict.fromkeys(made[tensor] for tensor in record.inputs if tensor in made)))
        made.update({tensor: op for tensor in record.outputs if owner[tensor] not in writes})
    return found


def _lists(name: str, groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The items of all groups one after the other, and where each begins, with the end of the last."""
    bounds = itertools.accumulate((len(group) for group in groups), initial=0)
    return {name: _ints(itertools.chain.from_iterable(groups)), f"{name}_at": _ints(bounds)}


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)
