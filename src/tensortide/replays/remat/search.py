"""Searches over runs: the best of many policies, the smallest budget that is enough, and what no policy goes below."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tensortide.plans.remat.policies import DEFAULT, POLICIES, policy
from tensortide.replays.remat.simulation import Simulation
from tensortide.replays.remat.simulator import Simulator

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Schedule

AUTO = "auto"
"""The best of many policies (``best``)."""
_SEEDS = 4
"""Seeds that are tried of a policy that draws lots."""
_BANISHING_OPS = 20_000
"""Longest step on which banishing, which only the plain engine plays, is tried too."""
_PARTS = 512
"""Budgets that are tried are multiples of a power of two that is at least this part of the largest."""


def play(
    simulator: Simulator, policy: str, budget_bytes: int | None, *, overhead_limit: float | None = None
) -> tuple[Simulation, tuple[Simulation, ...]]:
    """The run by ``policy``; of ``auto`` the best one, and all runs."""
    if policy == AUTO:
        return best(simulator, budget_bytes, overhead_limit=overhead_limit)
    return simulator.run(policy, budget_bytes, overhead_limit=overhead_limit), ()


def candidates() -> tuple[str, ...]:
    """The policies that are tried, the default one first; of equals the first wins."""
    plain = (name for name, row in POLICIES.items() if not row.seeded and name != DEFAULT)
    return DEFAULT, *plain, *(f"{n}:{seed}" for n, row in POLICIES.items() if row.seeded for seed in range(_SEEDS))


def best(
    simulator: Simulator, budget_bytes: int | None = None, *, overhead_limit: float | None = None
) -> tuple[Simulation, tuple[Simulation, ...]]:
    """The run that takes the least time, of equals the one with fewer evictions; and all runs, in the order tried.

    Every policy of the table is played, and, where the rules allow and the step is short, the local one with
    banishing. So the result is never slower than ``dtr-eq``, and ends whenever one of them does; if none does, it is
    the run of ``dtr-eq``.
    """
    names = [name for name in candidates() if simulator.deallocation != "banish" or _plays_banishing(name, simulator)]

    def play(name: str) -> Simulation:
        return simulator.run(name, budget_bytes, overhead_limit=overhead_limit)

    first = play(names[0])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [first, *pool.map(play, names[1:])]
    if simulator.deallocation == "eager" and not simulator.compat and len(simulator.schedule.cost_ns) <= _BANISHING_OPS:
        runs.append(simulator.by("banish").run("dtr-local", budget_bytes, overhead_limit=overhead_limit))
    ended = [run for run in runs if run.status == "ok"]
    found = min(ended, key=lambda run: (run.clock_ns, run.evictions), default=first)
    return found, tuple(runs)


def _plays_banishing(name: str, simulator: Simulator) -> bool:
    """Tell whether DTR's first runtime, which keeps no classes and no regions, can play it where its rules count."""
    row = POLICIES.get(policy(name).name)
    return not simulator.compat or (row is not None and row.banishes)


def op_bytes(schedule: Schedule, compat: bool, *, constants: bool = True) -> Iterator[int]:
    """For each op the bytes of what it reads, makes and takes while it runs.

    ``compat``: as DTR's simulator counts, everything that it reads counts where it was made, views as nothing. Else
    storages count in full and once; without ``constants`` those that cannot be recomputed do not.
    """
    nbytes, owner, size = schedule.nbytes.tolist(), schedule.storage.tolist(), schedule.storage_bytes.tolist()
    fixed = schedule.fixed.tolist()
    for (read, made), extra in zip(schedule.ops(), schedule.extra_bytes.tolist(), strict=True):
        if compat:
            needed = sum(nbytes[value] for value in read)
        else:
            needed = sum(size[s] for s in {owner[value] for value in read} if constants or not fixed[s])
        yield needed + extra + sum(nbytes[value] for value in made)


def least_bytes(schedule: Schedule) -> tuple[int, int]:
    """Return the bytes that the most demanding op needs, and its number: its inputs, outputs and workspace, and the
    storages that are neither recomputable nor ever released. No policy ends with less. ``(0, -1)`` without ops."""
    owner, size, root = schedule.storage.tolist(), schedule.storage_bytes.tolist(), schedule.root.tolist()
    fixed, extra = schedule.fixed.tolist(), schedule.extra_bytes.tolist()
    stays = [schedule.graph.storages[origin].death is None for origin in schedule.storage_origin.tolist()]
    most, worst, staying = 0, -1, 0
    for op, (read, made) in enumerate(schedule.ops()):
        fresh = {owner[value] for value in made if root[owner[value]] == value}
        touched = {owner[value] for value in (*read, *made)}
        needs = staying + extra[op] + sum(size[s] for s in touched if s in fresh or not (fixed[s] and stays[s]))
        if needs > most:
            most, worst = needs, op
        staying += sum(size[s] for s in fresh if fixed[s] and stays[s])
    return most, worst


def smallest_budget(
    simulator: Simulator,
    policy: str,
    *,
    overhead_limit: float | None = None,
    above: int = 0,
    watch: Callable[[int], None] = lambda budget: None,
) -> Simulation:
    """Find by bisection the smallest budget with which ``policy`` ends, and return its run; if even the step's own peak
    is not enough, the run with that, whose status says so.

    Budgets up to ``above`` are known not to work. A policy that ends with some budget may fail with a larger one: what
    is found works, the one tried last below it does not, and others were not looked at. ``watch`` is called with
    each budget tried.
    """
    found = simulator.run(policy, simulator.baseline_bytes, overhead_limit=overhead_limit)
    if found.status != "ok":
        return found
    step = 1 << max(0, (simulator.baseline_bytes // _PARTS).bit_length() - 1)
    low = max(above, least_bytes(simulator.schedule)[0] - 1) // step
    high = -(-found.peak_bytes // step)
    while high - low > 1:
        middle = (low + high) // 2
        watch(middle * step)
        run = simulator.run(policy, middle * step, overhead_limit=overhead_limit)
        if run.status == "ok":
            found, high = run, middle
        else:
            low = middle
    return found
