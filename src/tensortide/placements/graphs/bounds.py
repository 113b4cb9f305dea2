"""Lower bounds on the time of every placement of a captured step: no search has to be made for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from tensortide.placements.arrays import Floats
from tensortide.placements.bounds import Bounds
from tensortide.placements.graphs.memory_limits import Limit
from tensortide.placements.graphs.schedules import tails_ns
from tensortide.placements.graphs.tables import Step

_ROUNDS = 300
"""Weights of devices that are tried for the strongest bound on shared work."""


def bounds_of(step: Step, pins: Mapping[int, int], limits: Sequence[Limit]) -> Bounds:
    """Lower bounds on the time of ``step``, ms.

    ``limits``: necessary conditions of memory; each holds by itself. The longest chain: of dependent ops, each on its
    fastest device, where the ops of one unit wait for each other. Work: that of all units, shared out among the
    devices, or that of issuing them among the hosts, so that the resident bytes fit.
    """
    if not len(step.graph):
        return Bounds(0.0, 0.0)
    chain = max(int(tails_ns(step).max()), _longest_unit(step))
    shared, limits = 0.0, _one_slack(limits)
    for ns in (step.computing_ns, step.issue_ns):
        work = np.zeros((len(step.units), step.devices))
        np.add.at(work, step.tables.unit, ns)
        if work.any():
            for unit, device in pins.items():
                work[unit, np.arange(step.devices) != device] = np.inf
            shared = max(shared, *(_shared_out(work, limit) for limit in limits))
    return Bounds(chain / 1e6, shared / 1e6)


def _one_slack(limits: Sequence[Limit]) -> list[Limit]:
    """``limits``, but of those with room for all units on any device the first alone: the bound on work is the same."""
    slack = [limit for limit in limits if (limit.unit_bytes.max(axis=1).sum() <= limit.room_bytes).all()]
    return [limit for limit in limits if limit not in slack[1:]]


def _longest_unit(step: Step) -> int:
    """The longest time, ns, that a unit needs with what comes before and after each of its ops.

    Its ops run one at a time, on one device, but for exchanges beside them. With the longest path to each op and from
    it, the preemptive schedule that prefers the op with most behind it ends as early as any can (Jackson's; Carlier
    1982, "The one-machine sequencing problem").
    """
    tails = tails_ns(step)
    least = step.ns.min(axis=1)
    heads = _heads_ns(step, least.tolist())
    found = 0
    for unit in range(len(step.units)):
        ops = (step.tables.unit == unit) & step.computes
        # all ops on the fastest device of the unit: the total counts, and no op is shorter than at its fastest
        spare = int(step.ns[ops].sum(axis=0).min() - least[ops].sum())
        jobs = zip(heads[ops].tolist(), least[ops].tolist(), (tails[ops] - least[ops]).tolist(), strict=True)
        rows = sorted(jobs)
        found = max(found, _one_machine(rows))
        first, last = min((head for head, *_ in rows), default=0), min((after for *_, after in rows), default=0)
        found = max(found, first + sum(ns for _, ns, _ in rows) + spare + last)
    return found


def _heads_ns(step: Step, least: list[int]) -> NDArray[np.int64]:
    """The longest path of ops before each op."""
    heads = [0] * len(least)
    for op, before in enumerate(step.graph.index.dependencies):
        heads[op] = max((heads[earlier] + least[earlier] for earlier in before), default=0)
    return np.array(heads, np.int64)


def _one_machine(jobs: list[tuple[int, int, int]]) -> int:
    """The end of the preemptive schedule of ``jobs`` (earliest start, time, time behind it), sorted by their starts."""
    waiting: list[tuple[int, int]] = []
    now = found = 0
    for number, (start, ns, after) in enumerate(jobs):
        now = max(now, start) if not waiting else now
        heappush(waiting, (-after, ns))
        until = jobs[number + 1][0] if number + 1 < len(jobs) else None
        while waiting and (until is None or now < until):
            behind, left = heappop(waiting)
            run = left if until is None else min(left, until - now)
            now += run
            if run < left:
                heappush(waiting, (behind, left - run))
            else:
                found = max(found, now - behind)
    return found


def _shared_out(work: Floats, limit: Limit) -> float:
    """The least time in which ``work`` [units, devices] can be done by all devices, if units could be divided and took
    their bytes of ``limit`` along.

    Weak duality: with weights of the devices that add up to 1, and prices of their bytes, no placement is faster than
    the sum over the units of the least weighted time and price, less the price of all capacity. Weights and prices
    rise where the cheapest placement exceeds the mean load and the capacity, and the strongest bound counts.
    """
    memory, capacity = limit.unit_bytes, limit.room_bytes
    units, devices = work.shape
    finite = np.where(np.isfinite(work), work, 0.0)
    room = np.where(np.isfinite(capacity), capacity, memory.sum(axis=0))
    scale = finite.max() * units / max(float(memory.sum(axis=0).max()), 1.0) / devices
    equal, by_speed = np.ones(devices), 1.0 / finite.sum(axis=0).clip(min=1.0)
    found = 0.0
    for start in (equal / devices, by_speed / by_speed.sum()):
        weights, price = start, np.zeros(devices)
        for turn in range(_ROUNDS):
            cost = work * weights + memory * price
            chosen = cost.argmin(axis=1)
            bound = float(cost.min(axis=1).sum() - price @ room)
            found = max(found, bound)
            taken = np.bincount(chosen, weights=finite[np.arange(units), chosen], minlength=devices)
            used = np.bincount(chosen, weights=memory[np.arange(units), chosen], minlength=devices)
            step = 1.0 / math.sqrt(turn + 1)
            weights = weights * np.exp(step * (taken / max(taken.mean(), 1.0) - 1.0).clip(-3, 3))
            weights = weights / weights.sum()
            over = (used - room) / max(float(room.max()), 1.0)
            price = (price + step * scale * over).clip(min=0.0)
    return found
