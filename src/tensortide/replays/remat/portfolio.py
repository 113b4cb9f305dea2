"""The best of many policies for one step and one budget: no heuristic is best everywhere, and a run costs little."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from tensortide.plans.remat.policies import GRID, NAMED, policy
from tensortide.replays.remat.simulation import Simulation
from tensortide.replays.remat.simulator import Simulator

CANDIDATES = ("dtr-eq", *(name for name in NAMED if name != "dtr-eq"), *GRID, *(f"random:{seed}" for seed in range(4)))
"""Policies that are tried; of equals the first one wins."""
_BANISHING_OPS = 20_000
"""Longest step on which banishing, which only the plain engine plays, is tried too."""


def best(
    simulator: Simulator, budget_bytes: int | None = None, *, overhead_limit: float | None = None
) -> tuple[Simulation, tuple[Simulation, ...]]:
    """The run that takes the least time, of equals the one with fewer evictions; and all runs, in the order tried.

    Every policy of ``CANDIDATES`` is played, and, where the rules allow and the step is short, the local one with
    banishing. So the result is never slower than ``dtr-eq``, and ends whenever one of them does; if none does, it is
    the run of ``dtr-eq``.
    """
    names = [name for name in CANDIDATES if simulator.deallocation != "banish" or _plays_banishing(name, simulator)]

    def play(name: str) -> Simulation:
        return simulator.run(name, budget_bytes, overhead_limit=overhead_limit)

    first = play(names[0])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [first, *pool.map(play, names[1:])]
    if simulator.deallocation == "eager" and not simulator.compat and len(simulator.schedule.cost_ns) <= _BANISHING_OPS:
        banishing = Simulator(
            simulator.recording, deallocation="banish", workspace=simulator.workspace, device=simulator.schedule.device
        )
        runs.append(banishing.run("dtr-local", budget_bytes, overhead_limit=overhead_limit))
    ended = [run for run in runs if run.status == "ok"]
    found = min(ended, key=lambda run: (run.clock_ns, run.evictions), default=first)
    return found, tuple(runs)


def _plays_banishing(name: str, simulator: Simulator) -> bool:
    """DTR's first runtime keeps no classes and no regions."""
    return not simulator.compat or policy(name).name in ("dtr-unopt", "dtr-local", "lru", "size", "random")
