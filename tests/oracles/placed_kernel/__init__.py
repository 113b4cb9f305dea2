"""Placed steps played from their tables, without tasks: the simulator that they had before the player, in plain Python.

It counts what each op waits for, and uses of storages and copies, while it plays. With the player it shares the tables
of a step, which it reads in another form, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensortide.placements.graphs.schedules import Ordering
from tensortide.placements.graphs.tables import Step
from tests.oracles.placed_kernel.play import play
from tests.oracles.placed_kernel.records import Exchanges, Order, Run, Tables

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints
    from tensortide.placements.graphs.kernel.records import Order as StrictOrder

_BY_TRANSFER = ("sent", "send_lane", "send_target", "send_start", "send_end", "next_send", "send_source")


def played(step: Step, place: Sequence[int], order: Order) -> Run:
    """Play ``place`` in ``order``."""
    writers = step.tables.writer
    following = [-1 if value.next < 0 else int(writers[value.next]) for value in step.values.values]
    run = _scratch(step, order.micro_batches)
    play(_tables(step), order, run, np.array(place, np.int64), np.array(following, np.int64), step.devices)
    return run


def order_of(ordering: Ordering, rank: Ints, limit: Ints) -> Order:
    """The order in which what is ready starts by ``rank``, with a ``limit`` of micro-batches in flight."""
    own = ordering.schedule.pipeline
    first = int(own is not None and own.next_pass == "forward")
    forward = ordering.forward.astype(np.int64)
    return Order(rank, np.argsort(rank), 0, ordering.micro, forward, first, limit, ordering.schedule.micro_batches)


def strict(order: StrictOrder) -> Order:
    """The order to which devices keep."""
    none = np.full(len(order.rank), -1, np.int64)
    return Order(order.rank, order.by_rank, 1, none, 0 * none, 0, order.limit, 1)


def _tables(step: Step) -> Tables:
    t, graph = step.tables, step.graph
    makers = [t.makers[first:last].tolist() for first, last in zip(t.makers_at, t.makers_at[1:], strict=False)]
    users = [t.users[first:last].tolist() for first, last in zip(t.users_at, t.users_at[1:], strict=False)]
    lists = {
        "after": _inverted(makers, len(graph)),
        "touches": _inverted(users, len(graph)),
        "makes": graph.index.allocated,
    }
    made: dict[str, Ints] = {}
    for name, groups in lists.items():
        made[name] = np.array([item for group in groups for item in group], np.int64)
        made[f"{name}_at"] = np.cumsum([0, *map(len, groups)])
    # What is at home nowhere takes no bytes, and the release of it would be one of others.
    made["users"] = np.array([len(own) or -1 if home >= 0 else -1 for own, home in zip(users, t.home, strict=True)])
    made["lane_target"] = np.array([lane.target for lane in step.cluster.wires], np.int64)
    own = {name: value for name, value in t._asdict().items() if name in Tables._fields and name not in made}
    return Tables(**{**own, **made, "exchanges": Exchanges(*t.exchanges)})


def _inverted(groups: Iterable[Iterable[int]], count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, group in enumerate(groups):
        for item in group:
            found[item].append(number)
    return found


def _scratch(step: Step, micro_batches: int) -> Run:
    """Room for a run: more than it needs."""
    devices, ops, values = step.devices, len(step.graph), len(step.values.values)
    lanes, storages = len(step.cluster.wires), len(step.tables.home)
    room = devices * (values + ops + micro_batches + storages) + 2 * (devices + lanes) + 9
    exact = {"peak": devices, "moved": lanes, "pending": ops, "device": ops, "start": ops, "end": ops}
    exact |= {"issued": ops, "issuing": ops, "seen": devices}
    sizes = {name: exact.get(name, room) for name in Run._fields}
    sizes |= {name: room * max(1, devices) for name in _BY_TRANSFER}
    return Run(**{name: np.zeros(size, np.int64) for name, size in sizes.items()})
