"""Smallest sufficient budget: the bound below which no policy finishes, and the smallest budget found to suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tensortide.replays.remat.simulation import Simulation
from tensortide.replays.remat.simulator import Simulator

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Schedule

_PARTS = 512
"""Budgets that are tried are multiples of a power of two that is at least this part of the largest."""


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
