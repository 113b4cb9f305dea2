"""Chains of n layers and their backward: growth of recomputation with n, against known sufficient schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.checkpointing.static import StaticGraph
from tensortide.plans.remat.choice import policy
from tensortide.plans.remat.schedule import Event, Recording
from tensortide.replays.remat import Simulation, Simulator
from tensortide.studies.remat.contenders import made_up
from tensortide.studies.remat.grid import Play, play_all, study
from tensortide.studies.remat.results import Cell, Study
from tensortide.studies.remat.subject import Subject

RULES: dict[str, tuple[str, Callable[[int], float]]] = {
    "n": ("n", lambda n: n),
    "n/2": ("n / 2", lambda n: n / 2),
    "8sqrt": ("8 sqrt n", lambda n: 8 * math.sqrt(n)),
    "6sqrt": ("6 sqrt n", lambda n: 6 * math.sqrt(n)),
    "4sqrt": ("4 sqrt n", lambda n: 4 * math.sqrt(n)),
    "2sqrt": ("2 sqrt n", lambda n: 2 * math.sqrt(n)),
    "sqrt+3": ("sqrt n + 3", lambda n: math.sqrt(n) + 3),
    "sqrt": ("sqrt n", math.sqrt),
    "3log2": ("3 log2 n", lambda n: 3 * math.log2(n)),
    "log2": ("log2 n", math.log2),
}
"""Budgets as functions of the length, as they are written and computed; they are rounded up."""
LIMIT = 21.0
"""Overhead at which a run is given up: 40 n ops recomputed."""
LARGEST_MAP = 128
"""Most layers of a network whose tensors are drawn."""


def linear_network(n: int) -> Recording:
    """``n`` layers that each take 1 ns and make 1 byte of the output of the one before, and their backward.

    The gradient of layer i is made of the output of layer i - 1 and the gradient of layer i + 1; the output of layer i
    is dropped before, the gradient of layer i + 1 after. Op and tensor i are layer i; those of its gradient are
    2 n - 1 - i.
    """
    if n < 1:
        raise PlanError(f"a network of {n} layers has none")
    events: list[tuple[Event, int]] = [(Event.COMPUTE, i) for i in range(n)]
    parents: list[tuple[int, ...]] = [(i - 1,) if i else () for i in range(n)]
    for i in reversed(range(n)):
        gradient = 2 * n - 1 - i
        parents.append((i - 1, gradient - 1) if 0 < i < n - 1 else (gradient - 1,) if i < n - 1 else ())
        events += [(Event.RELEASE, i), (Event.COMPUTE, gradient)]
        if i < n - 1:
            events.append((Event.RELEASE, gradient - 1))
    ones, backward = (1,) * (2 * n), (False,) * n + (True,) * n
    last = frozenset({2 * n - 1})
    static = StaticGraph(cost_ns=ones, nbytes=ones, parents=tuple(parents), backward=backward, kept=last)
    kinds, indexes = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return Recording(made_up(static, f"linear network of {n} layers").graph, ones, kinds, indexes, "1 ns for every op")


def chen(n: float) -> float:
    """Count the ops recomputed by keeping every sqrt(n)-th output, with memory for 2 sqrt(n) (Chen et al., 2016)."""
    return n


def treeverse(n: float) -> float:
    """Count the ops recomputed by halving the chain recursively, with memory for log2(n) (Griewank, 1992): the solution
    of T(1) = 2, T(m) = m / 2 + 2 T(m / 2), less the n that run anyway."""
    return n + n / 2 * math.log2(n)


def asymptotics(
    sizes: Sequence[int],
    rules: Sequence[str],
    policies: Sequence[str],
    *,
    compat: bool = False,
    overhead_limit: float = LIMIT,
    play: Play = play_all,
) -> Study:
    """Play linear networks of ``sizes`` under the budgets of ``rules`` (keys of RULES) by each of ``policies``.

    Raises PlanError for an unknown rule or policy, and for a network without layers.
    """
    for rule in rules:
        if rule not in RULES:
            raise PlanError(f"there is no budget {rule!r} of n; there are {', '.join(RULES)}")
    for name in policies:
        policy(name)
    subjects = [(n, Subject(f"n = {n}", linear_network(n), compat=compat)) for n in sizes]
    places = [
        (panel, name, n, subject, Cell(name, budget_of(rule, n), overhead_limit))
        for n, subject in subjects
        for panel, rule in enumerate(rules)
        for name in policies
    ]
    return study("growth", rules, places, play)


def residencies(growth: Study) -> list[tuple[str, Simulation]]:
    """Runs of the first policy of ``growth``, on its longest network of at most ``LARGEST_MAP`` layers: one for each
    budget, with a title."""
    sizes = [int(trial.at) for trial in growth.trials]
    n = max((n for n in sizes if n <= LARGEST_MAP), default=min(sizes))
    simulator, name = Simulator(linear_network(n), compat=growth.compat), growth.trials[0].cell.policy
    found = []
    for rule in growth.panels:
        run = simulator.run(name, budget_of(rule, n), overhead_limit=growth.overhead_limit)
        failed = "" if run.status == "ok" else f" ({run.status})"
        found.append((f"{name}, {n} layers, {RULES[rule][0]}{failed}", run))
    return found


def budget_of(rule: str, n: int) -> int:
    """Bytes that ``rule`` grants a network of ``n`` layers."""
    return math.ceil(RULES[rule][1](n))
