"""Idle intervals of storages (or tensors), and their births and deaths: liveness in ops.

Time is counted in ops. *Birth* is inclusive, *death* exclusive; an *inactive period* ``[start, end)`` holds ops that do
not touch it, ``end`` being the next op that does. What lives across steps is *persistent*: steps repeat, so its last
period wraps around to its first use.
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
from tensortide.memory.lifetimes import Residence, require_straight, residences

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

Mode: TypeAlias = Literal["storage", "compat"]

NEVER_READ = -1
"""Death of what no op reads after its birth: it is alive during its birth op only."""


class Period(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ops ``start`` to ``end - 1``, none of which touch it. A ``looped`` period covers ``start`` to the end of the
    step and from its beginning to ``end - 1``. ``time``: in the unit of the durations given (None without them)."""

    start: int
    end: int
    looped: bool = False
    time: int | float | None = None


class Life(msgspec.Struct, frozen=True, gc=False):
    """Liveness of one storage, or tensor in mode ``compat``: ``index`` in the graph's table, and its bytes.

    ``birth`` and ``death`` are None for what is persistent and for what no op touches; ``uses`` are the ops that read
    or write it, ascending. A storage that exists before the step and is released in it is born with op 0.
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

    ``storage``: a storage is used whenever any view of it is, and alive as long as it is resident under the rule
    ``last_use`` (``memory.lifetimes``). ``compat``: every tensor owns its bytes, views too, and dies after the last op
    that reads it; of what exists before and after the step the first tensor, and any other that no op produces, is
    persistent.

    ``durations``: time of each op; periods then tell how long they last, by prefix sums of these values.
    Raises GraphError for another mode, a wrong number of durations, or a graph with loops.
    """
    if mode not in ("storage", "compat"):
        raise GraphError(f"liveness modes are 'storage' and 'compat', not {mode!r}")
    if durations is not None and len(durations) != len(graph):
        raise GraphError(f"{len(durations)} durations for {len(graph)} ops")
    require_straight(graph)
    clock = None if durations is None else _prefix_sums(durations)
    if mode == "compat":
        facts = zip(*_by_tensor(graph), lasting_tensors(graph), strict=True)
        return tuple(
            _tensor_life(graph, i, tuple(uses), last_read, lasting, clock)
            for i, (uses, last_read, lasting) in enumerate(facts)
        )
    return tuple(_storage_life(graph, i, residence, clock) for i, residence in enumerate(residences(graph)))


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
    times = [len(life.uses) for life in lives]
    ops = np.fromiter(itertools.chain.from_iterable(life.uses for life in lives), np.int64, sum(times))
    np.add.at(active, ops, np.repeat(np.array([life.nbytes for life in lives], np.int64), times))
    return active


def _by_tensor(graph: Graph) -> tuple[list[list[int]], list[int]]:
    """For each tensor the distinct ops that use it, ascending, and the last that reads it (-1: none)."""
    users: list[list[int]] = [[] for _ in graph.tensors]
    last_read = [-1] * len(users)
    for index, op in enumerate(graph.ops):
        for tensor in op.inputs:
            last_read[tensor] = index
        for tensor in {*op.inputs, *op.outputs}:
            users[tensor].append(index)
    return users, last_read


def _storage_life(graph: Graph, index: int, residence: Residence, clock: list[float] | None) -> Life:
    storage, uses = graph.storages[index], graph.index.users[index]
    if residence is Residence.ALWAYS:
        return _persistent(index, storage.nbytes, uses, len(graph), clock)
    if residence is Residence.NEVER:
        return Life(index, storage.nbytes, False, None, None, (), ())
    death = len(graph) if residence is Residence.KEPT else uses[-1] + 1
    first = [] if storage.birth is not None or not uses[0] else [_period(0, uses[0], clock)]
    periods = (*first, *_between(uses, death, clock))
    if storage.birth is not None and death == uses[0] + 1 and residence is Residence.LOCAL:
        death = NEVER_READ
    return Life(index, storage.nbytes, False, storage.birth or 0, death, uses, periods)


def _tensor_life(
    graph: Graph, index: int, uses: tuple[int, ...], last_read: int, lasting: bool, clock: list[float] | None
) -> Life:
    nbytes = bytes_of(graph.tensors[index])
    if not uses:
        return Life(index, nbytes, False, None, None, (), ())
    if lasting:
        return _persistent(index, nbytes, uses, len(graph), clock)
    death = last_read + 1 if last_read >= 0 else NEVER_READ
    return Life(index, nbytes, False, uses[0], death, uses, tuple(_between(uses, death, clock)))


def lasting_tensors(graph: Graph) -> list[bool]:
    """For each tensor True if it lives across steps, used or not, where every tensor owns its bytes (``compat``)."""
    across = [storage.birth is None and storage.death is None for storage in graph.storages]
    used: set[int] = set()
    produced: set[int] = set()
    for op in graph.ops:
        used.update(op.inputs)
        produced.update([tensor for tensor in op.outputs if tensor not in used])
        used.update(op.outputs)
    first: set[int] = set()
    lasting: list[bool] = []
    for index, tensor in enumerate(graph.tensors):
        lasting.append(across[tensor.storage] and (tensor.storage not in first or index not in produced))
        first.add(tensor.storage)
    return lasting


def _persistent(index: int, nbytes: int, uses: tuple[int, ...], count: int, clock: list[float] | None) -> Life:
    periods = [*_between(uses, count, clock)]
    if uses:
        first, last = uses[0], uses[-1]
        if last < count - 1:
            time = None if clock is None else clock[count] - clock[last + 1] + clock[first]
            periods.append(Period(last + 1, first, True, time))
        elif first > 0:
            periods.append(_period(0, first, clock))
    return Life(index, nbytes, True, None, None, uses, tuple(periods))


def _between(ops: Sequence[int], death: int, clock: list[float] | None) -> list[Period]:
    """Periods between consecutive uses that end before ``death``."""
    return [_period(a + 1, b, clock) for a, b in itertools.pairwise(ops) if a + 1 < b < death]


def _period(start: int, end: int, clock: list[float] | None) -> Period:
    return Period(start, end, False, None if clock is None else clock[end] - clock[start])


def _prefix_sums(durations: Sequence[float]) -> list[float]:
    total: float = 0
    sums = [total]
    for duration in durations:
        total += duration
        sums.append(total)
    return sums
