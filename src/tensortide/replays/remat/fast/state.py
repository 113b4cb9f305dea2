"""State of the compiled engine: flat arrays, grouped, and registers for single numbers.

Calls of compiled functions hand over every array of a tuple one by one; so what only ``kernel`` looks at is a tuple of
its own, and small arrays share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.plans.remat.schedule import Schedule

    Ints: TypeAlias = NDArray[np.int64]
    Small: TypeAlias = NDArray[np.int32]
    Records: TypeAlias = Any

_options: Any = {"cache": True, "nogil": True, "_nrt": False}
compiled = njit(**_options)
"""Without counts of references: every call would count those of every array, and no function here makes an array or
keeps one."""


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
``pinned``: 2 if it is a sum of gradients and spared, one of as many as the register ``spared`` says.
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
            *(getattr(schedule, name) for name in Step._fields[:12]),
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
