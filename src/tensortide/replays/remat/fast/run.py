"""The compiled engine: loaded, prepared for a Schedule, and called."""

from __future__ import annotations

import functools
import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensortide.plans.remat.policies import Work
from tensortide.plans.remat.schedule import Event
from tensortide.replays.remat.fast.state import FULL, OK, OOM, THRASH, Prepared, Step, World, with_room
from tensortide.replays.remat.outcome import UNLIMITED, Outcome, Rules, Shortage, Status
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.plans.remat.policies import Heuristic, Random
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.fast.state import Records, Small

_STATUS: dict[int, Status] = {OK: "ok", OOM: "oom", THRASH: "thrash"}


@functools.cache
def kernel() -> Callable[[Step, World], int]:
    """``kernel.play``, compiled when it is first called, which takes some 20 s, once for each version of the sources.

    Numba's own cache looks at one file only; so the machine code lies in a folder named after all of them, and after
    the values of the enumerations that they share with the plain engine.
    """
    import numba

    folder = Path(__file__).parent
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))
    sources.update(repr([list(shared) for shared in (Event, Kind, Work)]).encode())
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_home() / f"kernels-{sources.hexdigest()[:16]}")
    try:
        from tensortide.replays.remat.fast.kernel import play
    finally:
        config.CACHE_DIR = before
    return play


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


def run(schedule: Schedule, policy: Heuristic | Random, rules: Rules, ready: Prepared | None = None) -> Outcome:
    """Play ``schedule`` under ``rules``; ``ready`` is what ``prepared`` makes of it, to be made once for many runs."""
    ready = prepared(schedule) if ready is None else ready
    play = kernel()
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


def _outcome(reg: Records, trace: Small, status: int, rules: Rules) -> Outcome:
    trace.resize(int(reg["traced"]), refcheck=False)
    kinds = np.empty(len(trace), np.int8)
    np.bitwise_and(trace, 7, out=kinds, casting="unsafe")
    trace >>= 3
    memory = int(reg["memory"])
    return Outcome(
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


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensortide"
