"""Liveness: when each storage (or tensor) is born, dies, and lies idle between two uses.

Time is counted in ops. *Birth* is inclusive; *death* is exclusive, the op after the last one that reads; an *inactive
period* ``[start, end)`` holds ops that do not touch it, ``end`` being the next op that does. What lives across steps
is *persistent*: steps repeat, so its last period wraps around to its first use.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from tensortide.collector import no_collection
from tensortide.errors import GraphError
from tensortide.graph.model import Graph
from tensortide.memory.layout import bytes_of
from tensortide.memory.lives import Uses, require_straight

if TYPE_CHECKING:
    from tensortide.memory.lives import Ints

Mode: TypeAlias = Literal["storage", "compat"]

NEVER_READ = -1
"""Death of what is written and never read: it is alive during its birth op only."""


class Period(msgspec.Struct, frozen=True, array_like=True):
    """Ops ``start`` to ``end - 1``, none of which touch it. A ``looped`` period covers ``start`` to the end of the
    step and from its beginning to ``end - 1``. ``time``: in the unit of the durations given (None without them)."""

    start: int
    end: int
    looped: bool = False
    time: int | float | None = None


class Life(msgspec.Struct, frozen=True):
    """Liveness of one storage, or tensor in mode ``compat``: ``index`` in the graph's table, and its bytes.

    ``birth`` and ``death`` are None for what is persistent and for what no op touches; ``uses`` are the ops that read
    or write it, ascending.
    """

    index: int
    nbytes: int
    persistent: bool
    birth: int | None
    death: int | None
    uses: tuple[int, ...]
    periods: tuple[Period, ...]


@no_collection()
def liveness(graph: Graph, mode: Mode = "storage", durations: Sequence[float] | None = None) -> tuple[Life, ...]:
    """The Life of every storage of ``graph``, or of every tensor.

    ``storage``: a storage is used whenever any view of it is; what exists before and after the step is persistent;
    what outlives the step (outputs, gradients that are kept) dies at its end. ``compat``: every tensor owns its bytes,
    views too; of what exists before and after the step the first tensor, and any other that no op produces, is
    persistent, and what nobody reads later dies.

    ``durations``: time of each op; periods then tell how long they last, by prefix sums of these values.
    Raises GraphError for another mode, a wrong number of durations, or a graph with loops.
    """
    if mode not in ("storage", "compat"):
        raise GraphError(f"liveness modes are 'storage' and 'compat', not {mode!r}")
    if durations is not None and len(durations) != len(graph):
        raise GraphError(f"{len(durations)} durations for {len(graph)} ops")
    require_straight(graph)
    clock = None if durations is None else _prefix_sums(durations)
    uses = Uses(graph)
    if mode == "compat":
        groups = _grouped(uses.tensor, uses, len(graph.tensors))
        lasting = _lasting(graph, groups)
        return tuple(_tensor_life(graph, i, group, lasting[i], clock) for i, group in enumerate(groups))
    groups = _grouped(uses.storage, uses, len(graph.storages))
    return tuple(_storage_life(graph, i, group, clock) for i, group in enumerate(groups))


def live_bytes(lives: Sequence[Life], count: int) -> Ints:
    """Bytes alive during each of ``count`` ops: all that is persistent, and what is between birth and death."""
    import numpy as np

    change = np.zeros(count + 1, np.int64)
    for life in lives:
        if life.persistent:
            change[0] += life.nbytes
        elif life.birth is not None and life.death is not None:
            change[life.birth] += life.nbytes
            change[life.birth + 1 if life.death == NEVER_READ else life.death] -= life.nbytes
    return np.cumsum(change)[:count]


def active_bytes(lives: Sequence[Life], count: int) -> Ints:
    """Bytes that each of ``count`` ops touches: its inputs and outputs, each counted once."""
    import numpy as np

    active = np.zeros(count, np.int64)
    for life in lives:
        active[list(life.uses)] += life.nbytes
    return active


class _Group:
    """Uses of one storage or tensor: distinct ops ascending, the last that reads, and whether an op produces it."""

    __slots__ = ("last_read", "ops", "produced")

    def __init__(self) -> None:
        self.ops: list[int] = []
        self.last_read = -1
        self.produced = False


def _grouped(key: Ints, uses: Uses, count: int) -> list[_Group]:
    groups = [_Group() for _ in range(count)]
    for index, op, read in zip(key.tolist(), uses.op.tolist(), uses.read.tolist(), strict=True):
        group = groups[index]
        if not group.ops:
            group.produced = not read
        if not group.ops or group.ops[-1] != op:
            group.ops.append(op)
        if read:
            group.last_read = op
    return groups


def _storage_life(graph: Graph, index: int, group: _Group, clock: list[float] | None) -> Life:
    storage = graph.storages[index]
    outlives = storage.death is None
    if storage.birth is None and outlives:
        return _persistent(index, storage.nbytes, group, len(graph), clock)
    return _local(index, storage.nbytes, group, len(graph) if outlives else None, clock)


def _tensor_life(graph: Graph, index: int, group: _Group, lasting: bool, clock: list[float] | None) -> Life:
    nbytes = bytes_of(graph.tensors[index])
    if lasting and group.ops:
        return _persistent(index, nbytes, group, len(graph), clock)
    return _local(index, nbytes, group, None, clock)


def lasting_tensors(graph: Graph) -> list[bool]:
    """Whether each tensor lives across steps where every tensor owns its bytes (mode ``compat``), used or not."""
    return _lasting(graph, _grouped((uses := Uses(graph)).tensor, uses, len(graph.tensors)))


def _lasting(graph: Graph, groups: Sequence[_Group]) -> list[bool]:
    across = [storage.birth is None and storage.death is None for storage in graph.storages]
    first: set[int] = set()
    lasting: list[bool] = []
    for tensor, group in zip(graph.tensors, groups, strict=True):
        lasting.append(across[tensor.storage] and (tensor.storage not in first or not group.produced))
        first.add(tensor.storage)
    return lasting


def _local(index: int, nbytes: int, group: _Group, end: int | None, clock: list[float] | None) -> Life:
    if not group.ops:
        return Life(index, nbytes, False, None, None, (), ())
    death = end if end is not None else group.last_read + 1 if group.last_read >= 0 else NEVER_READ
    periods = tuple(_between(group.ops, death, clock))
    return Life(index, nbytes, False, group.ops[0], death, tuple(group.ops), periods)


def _persistent(index: int, nbytes: int, group: _Group, count: int, clock: list[float] | None) -> Life:
    if not group.ops:
        return Life(index, nbytes, True, None, None, (), ())
    periods = [*_between(group.ops, count, clock)]
    first, last = group.ops[0], group.ops[-1]
    if last < count - 1:
        time = None if clock is None else clock[count] - clock[last + 1] + clock[first]
        periods.append(Period(last + 1, first, True, time))
    elif first > 0:
        periods.append(Period(0, first, False, None if clock is None else clock[first]))
    return Life(index, nbytes, True, None, None, tuple(group.ops), tuple(periods))


def _between(ops: list[int], death: int, clock: list[float] | None) -> list[Period]:
    """Periods between consecutive uses that end before ``death``."""
    return [
        Period(a + 1, b, False, None if clock is None else clock[b] - clock[a + 1])
        for a, b in itertools.pairwise(ops)
        if a + 1 < b < death
    ]


def _prefix_sums(durations: Sequence[float]) -> list[float]:
    total: float = 0
    sums = [total]
    for duration in durations:
        total += duration
        sums.append(total)
    return sums
