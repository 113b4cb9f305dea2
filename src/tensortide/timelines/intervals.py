"""Idle intervals of storages (or tensors), and their births and deaths: liveness in ops.

Time is counted in ops. *Birth* is inclusive, *death* exclusive; an *idle interval* ``[start, end)`` holds ops that do
not touch it, ``end`` being the next op that does. What lives across steps is *persistent*: steps repeat, so its last
interval wraps around to its first use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Sized
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from tensortide.collector import no_collection
from tensortide.errors import GraphError, check_argument
from tensortide.graph.model import Graph
from tensortide.graph.validate import require_graph
from tensortide.memory.lifetimes import Residence, require_straight, residences
from tensortide.shown import Show, Shown

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

Mode: TypeAlias = Literal["storage", "compat"]

NEVER_READ = -1
"""Death of what no op reads after its birth: it is live during its birth op only."""


class Interval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ops ``start`` to ``end - 1``, none of which touch it. A ``looped`` interval covers ``start`` to the end of the
    step and from its beginning to ``end - 1``. ``time``: in the unit of the durations given (0 without them)."""

    start: int
    end: int
    looped: bool = False
    time: float = 0

    def covers(self, op: int) -> bool:
        """Return whether ``op`` lies within it."""
        return op >= self.start or op < self.end if self.looped else self.start <= op < self.end


class Life(msgspec.Struct, frozen=True, gc=False):
    """Liveness of one storage, or tensor in mode ``compat``: ``index`` in the graph's table, and its bytes.

    It is live during the ops ``start`` to ``stop - 1`` (both 0: never); ``uses`` are the ops that read or write it,
    ascending. A storage that exists before the step and is released in it is born with op 0. ``unread``: no op reads it
    after its birth.
    """

    index: Annotated[int, Show("Index")]
    nbytes: Annotated[int, Show("Bytes", "bytes", bar=60)]
    persistent: Annotated[bool, Show("Persistent")]
    start: Annotated[int, Show("Birth", "op")]
    stop: Annotated[int, Show("Death", "op")]
    uses: tuple[int, ...]
    intervals: tuple[Interval, ...]
    unread: bool = False

    @property
    def birth(self) -> Annotated[int | None, Show(unit="op", data=True)]:
        """The first op during which it is live; None for what is persistent and for what no op touches."""
        return None if self.persistent or not self.stop else self.start

    @property
    def death(self) -> Annotated[int | None, Show(unit="op", data=True)]:
        """The op after the last one during which it is live, or ``NEVER_READ``; None as for ``birth``."""
        return None if self.persistent or not self.stop else NEVER_READ if self.unread else self.stop

    @property
    def first_op(self) -> Annotated[int | None, Show("from op")]:
        """The first op during which it is live, persistent or not; None for what no op touches."""
        return self.start if self.stop else None

    @property
    def last_op(self) -> Annotated[int | None, Show("to op")]:
        """The last op during which it is live; None for what no op touches."""
        return self.stop - 1 if self.stop else None

    @property
    def use_count(self) -> Annotated[int, Show("Uses")]:
        """The number of ops that read or write it."""
        return len(self.uses)

    @property
    def interval_count(self) -> Annotated[int, Show("Idle intervals")]:
        """The number of its idle intervals."""
        return len(self.intervals)

    @property
    def longest_ns(self) -> Annotated[int, Show("Longest")]:
        """The time of its longest idle interval."""
        return int(max((interval.time for interval in self.intervals), default=0))

    @property
    def live_uses(self) -> tuple[int, ...]:
        """The uses while it is live: in mode ``compat`` it may be written after its last read."""
        return self.uses if not self.uses or self.uses[-1] < self.stop else tuple(u for u in self.uses if u < self.stop)


class Lives(Shown, tuple[Life, ...]):
    """The Life of every storage of a Graph, or of every tensor."""

    SECTION = "memory.of_lives"

    def __repr__(self) -> str:
        return f"<Lives of {len(self):,}: {sum(len(life.intervals) for life in self):,} idle intervals>"


@no_collection()
def liveness(graph: Graph, mode: Mode = "storage", durations: Sequence[float] | None = None) -> Lives:
    """The Life of every storage of ``graph``, or of every tensor.

    ``storage``: a storage is used whenever any view of it is, and alive as long as it is resident under the rule
    ``last_use`` (``memory.lifetimes``). ``compat``: every tensor owns its bytes, views too, and dies after the last op
    that reads it; of what exists before and after the step the first tensor, and any other that no op produces, is
    persistent.

    ``durations``: time of each op; intervals then tell how long they last, by prefix sums of these values.
    Raises GraphError for another mode, a wrong number of durations, or a graph with loops.
    """
    require_graph(graph, "liveness")
    if mode not in ("storage", "compat"):
        raise GraphError(f"liveness modes are 'storage' and 'compat', not {mode!r}")
    check_argument("durations", durations, (Sized, NoneType), "the time of each op, or None")
    if durations is not None and len(durations) != len(graph):
        raise GraphError(f"{len(durations)} durations for {len(graph)} ops")
    require_straight(graph)
    clock = list(itertools.accumulate([0] * len(graph) if durations is None else durations, initial=0))

    def interval(start: int, end: int, looped: bool = False) -> Interval:
        time = clock[-1] - clock[start] + clock[end] if looped else clock[end] - clock[start]
        return Interval(start, end, looped, time)

    facts = _of_storages(graph) if mode == "storage" else _of_tensors(graph)
    return Lives(
        [
            Life(index, nbytes, persistent, start, stop, uses, _idle(uses, persistent, start, stop, interval), unread)
            for index, (nbytes, persistent, start, stop, uses, unread) in enumerate(facts)
        ]
    )


_Facts: TypeAlias = Iterator[tuple[int, bool, int, int, tuple[int, ...], bool]]
"""For each storage or tensor: bytes, whether it is persistent, start, stop, uses, and whether it is unread."""


def _of_storages(graph: Graph) -> _Facts:
    count = len(graph)
    for storage, uses, residence in zip(graph.storages, graph.index.users, residences(graph), strict=True):
        local = residence is Residence.LOCAL
        stop = uses[-1] + 1 if local else 0 if residence is Residence.NEVER else count
        unread = local and storage.birth is not None and stop == uses[0] + 1
        yield storage.nbytes, residence is Residence.ALWAYS, storage.birth or 0, stop, uses, unread


def _of_tensors(graph: Graph) -> _Facts:
    users: list[list[int]] = [[] for _ in graph.tensors]
    last_read = [-1] * len(users)
    for index, op in enumerate(graph.ops):
        for tensor in op.inputs:
            last_read[tensor] = index
        for tensor in {*op.inputs, *op.outputs}:
            users[tensor].append(index)
    for view, uses, last, lasting in zip(graph.tensors, users, last_read, lasting_tensors(graph), strict=True):
        if not uses:
            yield view.nbytes, False, 0, 0, (), False
        elif lasting:
            yield view.nbytes, True, 0, len(graph), tuple(uses), False
        else:
            yield view.nbytes, False, uses[0], max(last, uses[0]) + 1, tuple(uses), last < 0


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


def _idle(
    uses: tuple[int, ...], persistent: bool, start: int, stop: int, interval: Callable[..., Interval]
) -> tuple[Interval, ...]:
    """The intervals between consecutive uses, before the first one too if it is live by then; of what is persistent
    the wrap comes last."""
    touched = uses if persistent else (start - 1, *uses)
    found = [interval(a + 1, b) for a, b in itertools.pairwise(touched) if a + 1 < b < stop]
    if persistent and uses:
        first, last = uses[0], uses[-1]
        if last < stop - 1:
            found.append(interval(last + 1, first, True))
        elif first > 0:
            found.append(interval(0, first))
    return tuple(found)


def live_bytes(lives: Sequence[Life], count: int) -> Ints:
    """Bytes live during each of ``count`` ops."""
    import numpy as np

    change = np.zeros(count + 1, np.int64)
    rows = np.array([(life.start, life.stop, life.nbytes) for life in lives], np.int64).reshape(-1, 3)
    np.add.at(change, rows[:, 0], rows[:, 2])
    np.subtract.at(change, rows[:, 1], rows[:, 2])
    return np.cumsum(change)[:count]


def active_bytes(lives: Sequence[Life], count: int) -> Ints:
    """Bytes that each of ``count`` ops touches: its inputs and outputs, each counted once."""
    import numpy as np

    active = np.zeros(count, np.int64)
    times = [len(life.uses) for life in lives]
    ops = np.fromiter(itertools.chain.from_iterable(life.uses for life in lives), np.int64, sum(times))
    np.add.at(active, ops, np.repeat(np.array([life.nbytes for life in lives], np.int64), times))
    return active
