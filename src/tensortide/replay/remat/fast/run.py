"""The compiled engine, called."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from tensortide.replay.remat.fast import state as registers
from tensortide.replay.remat.fast.load import kernel
from tensortide.replay.remat.fast.state import World, with_room, world_of
from tensortide.replay.remat.outcome import UNLIMITED, Outcome, Rules, Shortage, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.plan.remat.policies import Heuristic, Random
    from tensortide.plan.remat.schedule import Schedule

_STATUS: dict[int, Status] = {registers.OK: "ok", registers.OOM: "oom", registers.THRASH: "thrash"}


def run(schedule: Schedule, policy: Heuristic | Random, rules: Rules, world: World | None = None) -> Outcome:
    """Play ``schedule`` under ``rules``; ``world`` is what ``world_of`` makes of it, to be made once for many runs."""
    world = world_of(schedule) if world is None else world
    play = kernel()
    room = 4 * len(world.events) + 1024
    while True:
        state = with_room(world, room, words_of(getattr(policy, "seed", 0)))
        _set(state, policy, rules)
        status = play(state)
        if status != registers.FULL:
            return _outcome(state, status, rules)
        room *= 2


def _set(state: World, policy: Heuristic | Random, rules: Rules) -> None:
    reg = state.reg
    reg[registers.CLOCK] = rules.clock_ns
    reg[registers.BUDGET] = rules.budget_bytes
    reg[registers.LIMIT] = rules.remat_limit_ns
    reg[registers.EAGER] = rules.deallocation == "eager"
    reg[registers.COLLECT] = rules.collect
    reg[registers.HOLD] = rules.budget_bytes < UNLIMITED
    reg[registers.EXHAUSTIVE] = rules.exhaustive
    reg[registers.NODES] = len(state.storages)
    work = getattr(policy, "work", None)
    reg[registers.DICE] = work is None
    if work is not None:
        reg[registers.WORK] = work
        reg[registers.BY_SIZE] = policy.size  # type: ignore[union-attr]
        reg[registers.BY_STALENESS] = policy.staleness  # type: ignore[union-attr]


def _outcome(state: World, status: int, rules: Rules) -> Outcome:
    reg = state.reg.tolist()
    memory, length = reg[registers.MEMORY], reg[registers.TRACE]
    short = Shortage(reg[registers.ASKED], memory, rules.budget_bytes) if status == registers.OOM else None
    return Outcome(
        status=_STATUS[status],
        clock_ns=reg[registers.CLOCK],
        remat_ns=reg[registers.REMAT],
        peak_bytes=reg[registers.PEAK],
        final_bytes=memory,
        evaluations=reg[registers.EVALUATIONS],
        accesses=reg[registers.ACCESSES],
        shortage=short,
        kinds=(state.trace[:length] & 7).astype(np.int8),
        indexes=state.trace[:length] >> 3,
    )


def words_of(seed: int) -> NDArray[np.uint32]:
    """The state of ``random.Random(seed)``: 624 words and the place in them."""
    return np.array(random.Random(seed).getstate()[1], np.uint32)
