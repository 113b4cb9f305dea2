"""The best of many policies for one step and one budget: no heuristic is best everywhere, and a run costs little."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from tensortide.plans.remat.policies import DEFAULT, POLICIES, policy
from tensortide.replays.remat.simulation import Simulation
from tensortide.replays.remat.simulator import Simulator

_SEEDS = 4
"""Seeds that are tried of a policy that draws lots."""
_BANISHING_OPS = 20_000
"""Longest step on which banishing, which only the plain engine plays, is tried too."""


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
