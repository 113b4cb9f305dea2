"""State of the compiled engine: flat arrays, grouped, and registers for single numbers; and its call.

Calls of compiled functions hand over every array of a tuple one by one; so what only ``kernel`` looks at is a tuple of
its own, and small arrays share one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tensortide.replays.remat.simulation import UNLIMITED, RematOutcome, Rules, Shortage, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.plans.remat.schedule import Schedule

    Ints: TypeAlias = NDArray[np.int64]
    Small: TypeAlias = NDArray[np.int32]
    Records: TypeAlias = Any
    from tensortide.plans.remat.policies import Heuristic, Random

FAN = 16
"""Entries of the pool in a block, and blocks in a block of the next level."""
FEW_NODES = 64
"""Classes are tidied up when they have this many nodes, and then whenever there are a quarter more."""

OK, OOM, THRASH, FULL = range(4)
"""Outcomes of a run; FULL: the trace is full, and the run is to be repeated with more room."""


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype([(name, code) for code, names in fields.items() for name in names.split()], align=True)


_SINGLE = _record(
    i8="clock memory peak remat evaluations accesses budget limit pool_end pool_live height nodes node_limit traced "
    "token exhaustive asked eager collect work by_size by_staleness dice drawn hold waiting spared overrun overruns"
)
REGISTERS = np.dtype([*_SINGLE.descr, ("levels", "i8", (10,))])
"""Single numbers; ``levels``: where the blocks of each level of the pool begin."""
STORAGE = _record(
    i8="last work",
    f4="gain",
    u1="resident dead pinned fixed",
    i4="stamp place up up_end down down_end newest locks references dependents",
)
"""Fields that are searched first, in 64 bytes. ``last``: time of the last access. ``work``: that of its ops. ``gain``:
upper bound of the bytes per ns of work freed by evicting it. ``fixed``: not recomputable; 2: and in ``WAITS``.
``pinned``: 2 if it is a gradient and spared, one of as many as the register ``spared`` says.
``place``: in the pool while it is resident, or of its class while it is not; -1: none. ``near[up:up_end]``,
``near[down:down_end]``: what it is made of and what is made of it. ``newest``: its newest value. ``dependents``:
live storages made of it."""
NODE = _record(i8="value floor", i4="stamp above member following")
"""A node of the union-find of classes: ``floor`` is at most the value, and what bounds count on; ``following`` links
the members of a class in a ring."""
BLOCK = _record(i8="last until", f4="gain", i4="live")
"""A block of entries of the pool: up to the time ``until`` none is worth more than one of this gain and last access."""
FRAME = _record(i4="op wanted base")

QUEUE, BURIED, HELD, WAITS, PARTS = range(5)
"""Lists of storages in ``World.lists``."""


class Step(NamedTuple):
    """State that only ``kernel`` reads: the arrays of the Schedule; per value its op (``made``) and how many neighbours
    it adds to its storage (``added``); and the stack of ops in progress."""

    kinds: Ints
    indexes: Ints
    cost_ns: Ints
    extra_bytes: Ints
    sums: Ints
    inputs: Ints
    input_ends: Ints
    output_ends: Ints
    storage: Ints
    nbytes: Ints
    replaces: Ints
    root: Ints
    gradient: Ints
    made: Small
    added: Small
    frames: Records
    missing: Small


class World(NamedTuple):
    """Storages and everything else that changes while a step is played: ``reg`` has the only record of registers.
    ``sizes``, ``following`` (the next value of the same storage, in a ring) and ``near`` are shared by runs."""

    reg: Records
    storages: Records
    sizes: Ints
    following: Small
    near: Small
    defined: NDArray[np.uint8]
    lists: Small
    slot: Small
    blocks: Records
    nodes: Records
    trace: Small
    words: NDArray[np.uint32]


class Prepared(NamedTuple):
    """A Schedule and what follows from it, for any number of runs at a time (see Step and World)."""

    schedule: Schedule
    made: Small
    added: Small
    following: Small
    near: Small


def with_room(prepared: Prepared, room: int, words: NDArray[np.uint32]) -> tuple[Step, World]:
    """Everything for one run, with room for ``room`` entries of the trace, and dice.

    What is written before it is read is left as it is: it takes no memory until then.
    """
    schedule, storages = prepared.schedule, len(prepared.schedule.root)
    spare = storages // 4 + FEW_NODES
    starts = _levels(storages + spare)
    reg = np.zeros(1, REGISTERS)
    reg["height"], reg["node_limit"] = len(starts) - 1, FEW_NODES
    reg["levels"][0, : len(starts)] = starts
    step = Step._make(
        [
            *(getattr(schedule, name) for name in Step._fields[: Step._fields.index("made")]),
            prepared.made,
            prepared.added,
            np.empty(len(schedule.storage) + 1, FRAME),
            np.empty(len(schedule.inputs) + 1, np.int32),
        ]
    )
    world = World(
        reg=reg,
        storages=_storages(prepared),
        sizes=schedule.storage_bytes,
        following=prepared.following,
        near=prepared.near,
        defined=np.zeros(len(schedule.storage), np.uint8),
        lists=np.empty((PARTS, 2 * storages), np.int32),
        slot=np.empty(storages + spare, np.int32),
        blocks=np.empty(starts[-1], BLOCK),
        nodes=np.empty(storages + spare, NODE),
        trace=np.empty(room, np.int32),
        words=words,
    )
    return step, world


def _levels(slots: int) -> list[int]:
    """Return the start of the blocks of each level, up to the level of one block; and the end."""
    starts, blocks = [0], slots
    while blocks > 1:
        blocks = -(-blocks // FAN)
        starts.append(starts[-1] + blocks)
    return starts


def _storages(prepared: Prepared) -> Records:
    near, records = prepared.near, np.zeros(len(prepared.schedule.root), STORAGE)
    records["fixed"] = prepared.schedule.fixed
    records["place"] = -1
    middle = len(near) // 2
    for name, start, listed in (("up", 0, near[middle:]), ("down", middle, near[:middle])):
        counts = np.bincount(listed, minlength=len(records))
        records[name] = records[f"{name}_end"] = start + np.cumsum(counts) - counts
    return records


_STATUS: dict[int, Status] = {OK: "ok", OOM: "oom", THRASH: "thrash"}


def prepared(schedule: Schedule) -> Prepared:
    """Prepare the data that runs of ``schedule`` share."""
    storage, made = schedule.storage, schedule.op_of.astype(np.int32)
    order = storage.argsort(kind="stable").astype(np.int32)
    following = np.empty_like(order)
    following[order] = np.roll(order, -1)
    newest = order[np.flatnonzero(np.diff(storage[order], append=-1))]
    following[newest] = schedule.root[storage[newest]]
    added, near = _neighbours(schedule, made, order)
    return Prepared(schedule, made, added, following, near)


def _neighbours(schedule: Schedule, made: Small, order: Small) -> tuple[Small, Small]:
    """Count the storages that each value is the first of its storage to be made of, and list the neighbours of all
    storages in one array: first what each is made of, then what is made of each, both in the order of the ops.

    ``made``: the op of each value; ``order``: the values, storage by storage.
    """
    storage, storages, starts = schedule.storage, len(schedule.root), schedule.input_ends[:-1][made[order]]
    reads = np.diff(schedule.input_ends)[made[order]]
    values = np.repeat(order, reads)
    which = np.arange(len(values)) + np.repeat(starts - np.cumsum(reads) + reads, reads)
    sources = storage[schedule.inputs[which]].astype(np.int32)
    pairs = storage[values]
    own = pairs == sources
    pairs = pairs * storages + sources
    pairs[own] = -1
    found, first = np.unique(pairs, return_index=True)
    first = np.sort(first[found >= 0])
    values, sources = values[first], sources[first]
    below = storage[values[np.lexsort((values, sources))]]
    added = np.bincount(values, minlength=len(order)).astype(np.int32)
    return added, np.concatenate([sources, below.astype(np.int32)])


def run(schedule: Schedule, policy: Heuristic | Random, rules: Rules, ready: Prepared | None = None) -> RematOutcome:
    """Play ``schedule`` under ``rules``; ``ready`` is what ``prepared`` makes of it, to be made once for many runs."""
    from tensortide.replays.remat.fast.kernel import play

    ready = prepared(schedule) if ready is None else ready
    room = 4 * len(schedule.kinds) + 1024
    while True:
        step, world = with_room(ready, room, words_of(policy, room // 2))
        _set(world, policy, rules)
        status = play(step, world)
        if status != FULL:
            reg, trace = world.reg[0], world.trace
            del step, world  # the largest part of a run's memory
            return _outcome(reg, trace, status, rules)
        room *= 2


def _set(world: World, policy: Heuristic | Random, rules: Rules) -> None:
    work = getattr(policy, "work", None)
    registers = {
        "clock": rules.clock_ns,
        "budget": rules.budget_bytes,
        "limit": rules.remat_limit_ns,
        "eager": rules.deallocation == "eager",
        "collect": rules.collect,
        "hold": rules.budget_bytes < UNLIMITED,
        "exhaustive": rules.exhaustive,
        "overrun": rules.overrun_bytes or 0,
        "overruns": rules.overrun_bytes is not None,
        "dice": work is None,
        "work": work or 0,
        "by_size": getattr(policy, "size", False),
        "by_staleness": getattr(policy, "staleness", False),
    }
    for name, value in registers.items():
        world.reg[name] = value


def _outcome(reg: Records, trace: Small, status: int, rules: Rules) -> RematOutcome:
    trace.resize(int(reg["traced"]), refcheck=False)
    kinds = np.empty(len(trace), np.int8)
    np.bitwise_and(trace, 7, out=kinds, casting="unsafe")
    trace >>= 3
    memory = int(reg["memory"])
    return RematOutcome(
        status=_STATUS[status],
        clock_ns=int(reg["clock"]),
        remat_ns=int(reg["remat"]),
        peak_bytes=int(reg["peak"]),
        final_bytes=memory,
        evaluations=int(reg["evaluations"]),
        accesses=int(reg["accesses"]),
        shortage=Shortage(int(reg["asked"]), memory, rules.budget_bytes) if status == OOM else None,
        kinds=kinds,
        indexes=trace,
    )


def words_of(policy: Heuristic | Random, count: int) -> NDArray[np.uint32]:
    """The first ``count`` words of 32 bits that the generator of ``policy`` draws; none if it draws no lots."""
    seed = getattr(policy, "seed", None)
    drawn = b"" if seed is None else random.Random(seed).randbytes(4 * count)
    return np.frombuffer(drawn, "<u4").astype(np.uint32)
