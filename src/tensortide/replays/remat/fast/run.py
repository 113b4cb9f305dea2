"""The compiled engine, called."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from tensortide.replays.remat.fast import state as registers
from tensortide.replays.remat.fast.load import kernel, prepared
from tensortide.replays.remat.fast.state import Prepared, World, with_room
from tensortide.replays.remat.outcome import UNLIMITED, Outcome, Rules, Shortage, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.plans.remat.policies import Heuristic, Random
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.fast.state import Ints, Small

_STATUS: dict[int, Status] = {registers.OK: "ok", registers.OOM: "oom", registers.THRASH: "thrash"}


def run(schedule: Schedule, policy: Heuristic | Random, rules: Rules, ready: Prepared | None = None) -> Outcome:
    """Play ``schedule`` under ``rules``; ``ready`` is what ``prepared`` makes of it, to be made once for many runs."""
    ready = prepared(schedule) if ready is None else ready
    play = kernel()
    room = 4 * len(schedule.kinds) + 1024
    while True:
        step, world = with_room(ready, room, words_of(getattr(policy, "seed", 0)))
        _set(world, policy, rules)
        status = play(step, world)
        if status != registers.FULL:
            reg, trace = world.reg, world.trace
            del step, world  # the largest part of a run's memory
            return _outcome(reg, trace, status, rules)
        room *= 2


def _set(world: World, policy: Heuristic | Random, rules: Rules) -> None:
    reg = world.reg
    reg[registers.CLOCK] = rules.clock_ns
    reg[registers.BUDGET] = rules.budget_bytes
    reg[registers.LIMIT] = rules.remat_limit_ns
    reg[registers.EAGER] = rules.deallocation == "eager"
    reg[registers.COLLECT] = rules.collect
    reg[registers.HOLD] = rules.budget_bytes < UNLIMITED
    reg[registers.EXHAUSTIVE] = rules.exhaustive
    reg[registers.OVERRUN] = rules.overrun_bytes or 0
    reg[registers.OVERRUNS] = rules.overrun_bytes is not None
    work = getattr(policy, "work", None)
    reg[registers.DICE] = work is None
    if work is not None:
        reg[registers.WORK] = work
        reg[registers.BY_SIZE] = policy.size  # type: ignore[union-attr]
        reg[registers.BY_STALENESS] = policy.staleness  # type: ignore[union-attr]


def _outcome(registered: Ints, trace: Small, status: int, rules: Rules) -> Outcome:
    reg = registered.tolist()
    memory, length = reg[registers.MEMORY], reg[registers.TRACE]
    short = Shortage(reg[registers.ASKED], memory, rules.budget_bytes) if status == registers.OOM else None
    trace.resize(length, refcheck=False)
    kinds = np.empty(length, np.int8)
    np.bitwise_and(trace, 7, out=kinds, casting="unsafe")
    trace >>= 3
    return Outcome(
        status=_STATUS[status],
        clock_ns=reg[registers.CLOCK],
        remat_ns=reg[registers.REMAT],
        peak_bytes=reg[registers.PEAK],
        final_bytes=memory,
        evaluations=reg[registers.EVALUATIONS],
        accesses=reg[registers.ACCESSES],
        shortage=short,
        kinds=kinds,
        indexes=trace,
    )


def words_of(seed: int) -> NDArray[np.uint32]:
    """The state of ``random.Random(seed)``: 624 words and the place in them."""
    return np.array(random.Random(seed).getstate()[1], np.uint32)
