"""What the compiled engine works on: flat arrays, grouped, and registers for single numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.plan.remat.schedule import Schedule

    Ints: TypeAlias = NDArray[np.int64]
    Small: TypeAlias = NDArray[np.int32]
    Records: TypeAlias = Any

BLOCK = 64
"""Entries of the pool in a block, and blocks in a superblock."""

# Registers
(
    CLOCK,
    MEMORY,
    PEAK,
    REMAT,
    EVALUATIONS,
    ACCESSES,
    BUDGET,
    LIMIT,
    POOL_END,
    POOL_LIVE,
    NODES,
    TRACE,
    EVENT,
    TOKEN,
    EXHAUSTIVE,
    ASKED,
    EAGER,
    COLLECT,
    WORK,
    BY_SIZE,
    BY_STALENESS,
    DICE,
    HOLD,
    WAITING,
    REGISTERS,
) = range(25)

OK, OOM, THRASH, FULL = range(4)
"""How a run ends; FULL: the trace or the nodes are full, and it is to be run again with more room."""


def _record(wide: str, narrow: str, flags: str = "") -> np.dtype[np.void]:
    fields = [(name, "i8") for name in wide.split()] + [(name, "i4") for name in narrow.split()]
    return np.dtype([*fields, *((name, "u1") for name in flags.split())], align=True)


OP = _record("cost extra total", "input input_end output output_end edge edge_end")
"""Inputs of an op are ``inputs[input:input_end]``, its outputs the values ``output`` to ``output_end - 1``; ``edges``
from ``edge`` on are the pairs of storages that become neighbours when it runs."""
VALUE = _record("nbytes", "storage replaces op", "defined")
STORAGE = _record(
    "size last work least stamp",
    "value value_end up up_end down down_end newest locks references dependents position node",
    "material pinned fixed dead waits",
)
"""``last``: time of the last access. ``work``: what made it. ``least``: a bound of the work that evicting it may cause.
``up[up:up_end]``, ``down[down:down_end]``: what it is made of and what is made of it. ``newest``: its newest value.
``dependents``: storages made of it that may still be needed. ``position``: in the pool. ``node``: of its class."""
NODE = _record("value floor stamp", "above member following")
"""Of the union-find of classes: ``floor`` is at most the value, and what bounds count on; ``following`` links the
members of a class in a ring."""
BLOCK_RECORD = np.dtype([("gain", "f8"), ("last", "i8"), ("live", "i4")], align=True)
"""Most bytes per ns of work, and the earliest last access, of the entries of a block of the pool."""
FRAME = _record("", "op wanted base")
EDGE = _record("", "made source")


class World(NamedTuple):
    """A Schedule and everything that changes while it is played."""

    reg: Ints
    events: Small
    ops: Records
    inputs: Small
    values: Records
    storages: Records
    contents: Small
    edges: Records
    up: Small
    down: Small
    queue: Small
    buried: Small
    held: Small
    waiting: Small
    slot: Small
    blocks: Records
    supers: Records
    nodes: Records
    frames: Records
    missing: Small
    trace: Small
    words: NDArray[np.uint32]


_SHARED = frozenset({"events", "ops", "inputs", "contents", "edges", "up", "down"})
"""Parts of a World that no run writes: several at a time may read them."""
_SCRATCH = frozenset({"queue", "buried", "held", "waiting", "frames", "missing"})
"""Parts that a run writes before it reads them: no more of them takes memory than is used."""


def world_of(schedule: Schedule) -> World:
    """``schedule`` before anything has happened, without room for a trace."""
    storages, values = len(schedule.storage_bytes), len(schedule.storage)
    slots = 2 * storages + BLOCK
    blocks = slots // BLOCK + 1
    made, source, edge_ends = _edges(schedule)
    none = np.zeros(0, np.int32)
    return World(
        reg=np.zeros(REGISTERS, np.int64),
        events=(schedule.indexes << 2 | schedule.kinds).astype(np.int32),
        ops=_ops(schedule, edge_ends),
        inputs=schedule.inputs.astype(np.int32),
        values=_values(schedule),
        storages=_storages(schedule, made, source),
        contents=np.argsort(schedule.storage, kind="stable").astype(np.int32),
        edges=_filled(EDGE, len(made), made=made, source=source),
        up=source[np.argsort(made, kind="stable")].astype(np.int32),
        down=made[np.argsort(source, kind="stable")].astype(np.int32),
        queue=np.zeros(storages, np.int32),
        buried=np.zeros(storages, np.int32),
        held=np.zeros(storages, np.int32),
        waiting=np.zeros(storages, np.int32),
        slot=np.full(slots, -1, np.int32),
        blocks=np.zeros(blocks, BLOCK_RECORD),
        supers=np.zeros(blocks // BLOCK + 1, BLOCK_RECORD),
        nodes=np.zeros(0, NODE),
        frames=np.zeros(values + 1, FRAME),
        missing=np.zeros(len(schedule.inputs) + 1, np.int32),
        trace=none,
        words=np.zeros(625, np.uint32),
    )


def with_room(world: World, room: int, words: NDArray[np.uint32]) -> World:
    """``world`` for one run, with room for ``room`` entries of the trace, and dice."""
    storages = len(world.storages)
    nodes = np.zeros(
        storages + room // 2, NODE
    )  # the first ones are those of the storages; later ones are made when used
    for field in ("above", "member", "following"):
        nodes[field][:storages] = np.arange(storages)
    own_parts = {
        name: np.zeros_like(part) if name in _SCRATCH else part.copy()
        for name, part in world._asdict().items()
        if name not in _SHARED
    }
    return world._replace(**{**own_parts, "nodes": nodes, "trace": np.zeros(room, np.int32), "words": words})


def _filled(dtype: np.dtype[np.void], count: int, **columns: NDArray[Any]) -> Records:
    records = np.zeros(count, dtype)
    for name, column in columns.items():
        records[name] = column
    return records


def _ops(schedule: Schedule, edge_ends: Ints) -> Records:
    makes = np.diff(schedule.output_ends)
    totals = np.zeros(len(makes), np.int64)
    np.add.at(totals, np.repeat(np.arange(len(makes)), makes), schedule.nbytes)
    return _filled(
        OP,
        len(makes),
        cost=schedule.cost_ns,
        extra=schedule.extra_bytes,
        total=totals,
        input=schedule.input_ends[:-1],
        input_end=schedule.input_ends[1:],
        output=schedule.output_ends[:-1],
        output_end=schedule.output_ends[1:],
        edge=edge_ends[:-1],
        edge_end=edge_ends[1:],
    )


def _values(schedule: Schedule) -> Records:
    makes = np.diff(schedule.output_ends)
    return _filled(
        VALUE,
        len(schedule.storage),
        nbytes=schedule.nbytes,
        storage=schedule.storage,
        replaces=schedule.replaces,
        op=np.repeat(np.arange(len(makes)), makes),
    )


def _storages(schedule: Schedule, made: Ints, source: Ints) -> Records:
    count = len(schedule.storage_bytes)
    values, up, down = (_ends(owner, count) for owner in (schedule.storage, made, source))
    return _filled(
        STORAGE,
        count,
        size=schedule.storage_bytes,
        fixed=schedule.fixed,
        value=values[:-1],
        value_end=values[1:],
        up=up[:-1],
        up_end=up[:-1],
        down=down[:-1],
        down_end=down[:-1],
        position=np.full(count, -1),
        node=np.arange(count),
    )


def _edges(schedule: Schedule) -> tuple[Ints, Ints, Ints]:
    """Pairs (storage made, storage it is made of), each once, in the order of the ops; and where those of each op
    end."""
    storage, inputs = schedule.storage, schedule.storage[schedule.inputs]
    reads, makes = np.diff(schedule.input_ends), np.diff(schedule.output_ends)
    op_of_value = np.repeat(np.arange(len(makes)), makes)
    repeats = reads[op_of_value]
    made = np.repeat(storage, repeats)
    op = np.repeat(op_of_value, repeats)
    offsets = np.arange(len(made)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    source = inputs[np.repeat(schedule.input_ends[:-1][op_of_value], repeats) + offsets]
    other = made != source
    made, source, op = made[other], source[other], op[other]
    _, first = np.unique(made * len(schedule.storage_bytes) + source, return_index=True)
    first.sort()
    made, source, op = made[first], source[first], op[first]
    return made, source, np.concatenate([[0], np.cumsum(np.bincount(op, minlength=len(makes)))])


def _ends(owner: Ints, count: int) -> Ints:
    """Where the entries of each of ``count`` owners end when they are sorted by owner, after a leading 0."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))]).astype(np.int64)
