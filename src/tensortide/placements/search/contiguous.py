"""Contiguous splits: the genes in order, cut into stages, each stage on a device of its own; by dynamic programming.

The tables of work, transfers and memory stand for the simulator; every split that they suggest is then simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.problem import Floats, Ints, Placements, Problem
from tensortide.placements.search.session import Session
from tensortide.plans.compiled import making_arrays

ROOMS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
"""Shares of each device's memory that stages may fill, tried in turn: memory adds up only roughly."""
MOST_DEVICES = 8
"""Device orders are free up to this number of devices; more are taken in the order of their speed."""
MOST_CUTS = 200
"""Cuts that are tried; more genes are cut between blocks of them."""


@dataclass(frozen=True)
class Contiguous(Search):
    """Splits that minimise the longest stage, or the sum of all stages and cuts, for several limits of memory."""

    name: ClassVar[str] = "contiguous"
    about: ClassVar[str] = "contiguous stages by dynamic programming"

    def run(self, session: Session) -> None:
        """Propose the splits."""
        found = [*splits(session.problem, session.allowed)]
        if found:
            session.score(np.array(found))


def splits(problem: Problem, allowed: Ints) -> Iterator[Placements]:
    """Yield distinct splits [genes] of least longest stage and of least sum, within each share of memory."""
    tables = _tables(problem, allowed)
    seen: set[bytes] = set()
    for room in ROOMS:
        for is_sum in (False, True):
            stages = _solve(*tables, problem.capacity[tables[-1]] * room, is_sum)
            if stages is not None:
                row = _row(problem, tables[-2], tables[-1], stages)
                if row.tobytes() not in seen:
                    seen.add(row.tobytes())
                    yield row


def _tables(problem: Problem, allowed: Ints) -> tuple[Floats, Floats, Floats, Ints, Ints]:
    """Work up to each cut [cuts, devices], bytes up to it [cuts], time across it [cuts, devices, devices], the gene at
    which each cut stands, and the devices."""
    genes = len(problem.names)
    devices = allowed
    if len(allowed) > MOST_DEVICES:
        devices = allowed[np.argsort(problem.work[:, allowed].sum(axis=0), kind="stable")][:MOST_DEVICES]
    at = np.unique(np.linspace(0, genes, min(genes, MOST_CUTS) + 1).astype(np.int64))
    work = np.concatenate([np.zeros((1, len(devices))), np.cumsum(problem.work[:, devices], axis=0)])[at]
    memory = np.concatenate([[0.0], np.cumsum(problem.memory)])[at]
    across = np.zeros((genes + 1, len(devices), len(devices)))
    between = problem.transfers[:, devices[:, None], devices]
    last: dict[int, int] = {}
    # an output crosses a cut once, however many genes behind the cut read it
    for number, (producer, consumer) in sorted(enumerate(problem.edges.tolist()), key=lambda item: item[1]):
        start = max(producer + 1, last.get(producer, 0))
        if consumer >= start:
            across[start : consumer + 1] += between[number]
            last[producer] = consumer + 1
    return work, memory, across[at], at, devices


def _row(problem: Problem, at: Ints, devices: Ints, stages: Ints) -> Placements:
    row = np.empty(len(problem.names), np.int64)
    for start, end, device in stages.tolist():
        row[at[start] : at[end]] = devices[device]
    return row


def _solve(
    work: Floats, memory: Floats, across: Floats, at: Ints, devices: Ints, capacity: Floats, is_sum: bool
) -> Ints | None:
    """The best stages [stages, 3] as first cut, last cut and device; None if none fit ``capacity``."""
    del at, devices
    count = work.shape[1]
    cost, back = _costs(work, memory, across, capacity, is_sum)
    ends = cost[:, :, -1]
    if not np.isfinite(ends).any():
        return None
    mask, device = np.unravel_index(np.argmin(ends), ends.shape)
    stages, end = [], len(work) - 1
    while end:
        start, before = divmod(int(back[mask, device, end]), count + 1)
        stages.append((start, end, int(device)))
        mask, device, end = mask & ~(1 << device), before, start
    return np.array(stages[::-1], np.int64)


@making_arrays
def _costs(work: Floats, memory: Floats, across: Floats, capacity: Floats, is_sum: bool) -> tuple[Floats, Ints]:
    """Least cost [sets of devices used, last device, cut], and where it comes from: cut and device before, in one."""
    cuts, count = work.shape
    cost = np.full((1 << count, count, cuts), np.inf)
    back = np.zeros((1 << count, count, cuts), np.int64)
    for mask in range(1, 1 << count):
        for device in range(count):
            if not mask >> device & 1:
                continue
            rest = mask & ~(1 << device)
            for end in range(1, cuts):
                for start in range(end - 1, -1, -1):
                    if memory[end] - memory[start] > capacity[device]:
                        break
                    stage = work[end, device] - work[start, device]
                    if rest == 0:
                        if start == 0:
                            cost[mask, device, end] = stage
                            back[mask, device, end] = count
                        continue
                    for before in range(count):
                        if not rest >> before & 1 or cost[rest, before, start] == np.inf:
                            continue
                        cut = across[start, before, device]
                        earlier = cost[rest, before, start]
                        value = earlier + cut + stage if is_sum else max(earlier, cut, stage)
                        if value < cost[mask, device, end]:
                            cost[mask, device, end] = value
                            back[mask, device, end] = start * (count + 1) + before
    return cost, back
