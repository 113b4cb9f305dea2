"""Room for a placement as tasks, and for their record, made once for all placements of a step."""

from __future__ import annotations

import numpy as np

from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.kernel.records import Draft, Run
from tensortide.placements.graphs.tables import Step
from tensortide.play.rates import Shares
from tensortide.play.ready import Hosts, Ready
from tensortide.play.tasks import Tasks


def scratch(step: Step, micro_batches: int) -> Run:
    """Room for any placement of ``step``."""
    t, devices, ops = step.tables, step.devices, len(step.graph)
    lanes, gates, exchanges = 2 * devices + len(step.cluster.wires), devices * micro_batches, len(t.exchanges.ops)
    copies = sum(min(len(value.readers), devices - 1) for value in step.values.values)
    moves = copies * max((len(way) for ways in step.cluster.routes for way in ways), default=0)
    # Compiled code writes past the end of an array without a word, so these are bounds for every placement. Tasks: each
    # op and the release of its workspace, gates, every transfer of a copy and its release, buckets, releases.
    tasks = 2 * ops + gates + moves + copies + exchanges + len(t.home)
    # Each reader needs its value, and is needed by what overwrites that and by the release of a copy. Each op needs the
    # one before it in a strict order, a gate, and the last bucket; its gate and the release of its workspace need it.
    # Gates and buckets need those before them, a transfer what it sends.
    needs = 3 * len(t.readers) + len(t.makers) + len(t.users) + 5 * ops + gates + moves + exchanges
    room = Tasks(*map(_ints, (*[tasks] * 5, needs, tasks + 2, 2, 0)))
    by_op, by_lane = map(_ints, [ops] * 4), map(_ints, [devices] * 3)
    hosts = Hosts(devices if t.hosts else 0, t.launch, *by_op, *by_lane)
    record = _record(devices, lanes, tasks, needs)
    return Run(room, _draft(step, tasks), record, hosts, _shares(step, lanes))


def _draft(step: Step, tasks: int) -> Draft:
    devices, ops, beside = step.devices, len(step.graph), step.tables.exchanges
    arrivals, streams = len(step.values.values) * devices, devices * beside.streams
    sizes = (ops, ops, arrivals, tasks, tasks, *[len(beside.ops)] * 5, devices, devices, *[streams] * 3, devices)
    return Draft(*map(_ints, sizes))


def _record(devices: int, lanes: int, tasks: int, needs: int) -> Ready:
    # The tie of an op is its number, and the writer sets that of a transfer; only a transfer has bytes aside.
    given = _ints(tasks), np.arange(tasks), _ints(tasks) - 1
    sizes = (*[tasks] * 3, devices, devices, 3, tasks, needs, tasks + 1, tasks, *[lanes] * 3, tasks, tasks, lanes + 1)
    return Ready(*given, *map(_ints, sizes))


def _shares(step: Step, lanes: int) -> Shares:
    """Every device is slowed by the exchange beside it, whose lane is after those of transfers."""
    e, devices = step.tables.exchanges, step.devices
    beside, load = np.arange(lanes - devices, lanes), _ints(1 + int(e.channel.max(initial=0)))
    given = (devices if len(e.ops) else 0, beside, e.rate, e.sharers, e.channel, e.channel_at, e.flows)
    return Shares(*given, part=_ints(lanes), whole=_ints(lanes), load=load)


def _ints(count: int) -> Ints:
    return np.zeros(max(count, 1), np.int64)
