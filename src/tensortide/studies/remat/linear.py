"""Chains of n layers and their backward: growth of recomputation with n, against known sufficient schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tensortide.errors import PlanError
from tensortide.graph.model import TENSOR, Call, Graph, Meta, Op, Phase, Role, Storage, Tensor
from tensortide.plans.remat.choice import policy
from tensortide.plans.remat.recording import Event, Recording
from tensortide.studies.remat.grid import play_all
from tensortide.studies.remat.results import Cell, Growth, GrowthPoint
from tensortide.studies.remat.saved import Saved
from tensortide.studies.remat.subject import Subject

__all__ = ["LIMIT", "RULES", "asymptotics", "chen", "linear_network", "treeverse"]

RULES: dict[str, Callable[[int], float]] = {
    "n": lambda n: n,
    "n/2": lambda n: n / 2,
    "8sqrt": lambda n: 8 * math.sqrt(n),
    "6sqrt": lambda n: 6 * math.sqrt(n),
    "4sqrt": lambda n: 4 * math.sqrt(n),
    "2sqrt": lambda n: 2 * math.sqrt(n),
    "sqrt+3": lambda n: math.sqrt(n) + 3,
    "sqrt": math.sqrt,
    "3log2": lambda n: 3 * math.log2(n),
    "log2": math.log2,
}
"""Budgets as functions of the length; they are rounded up."""
LIMIT = 21.0
"""Overhead at which a run is given up: 40 n ops recomputed."""


def linear_network(n: int) -> Recording:
    """``n`` layers that each take 1 ns and make 1 byte of the output of the one before, and their backward.

    The gradient of layer i is made of the output of layer i - 1 and the gradient of layer i + 1; the output of layer i
    is dropped before, the gradient of layer i + 1 after. Op and tensor i are layer i; those of its gradient are
    2 n - 1 - i.
    """
    if n < 1:
        raise PlanError(f"a network of {n} layers has none")
    events: list[tuple[Event, int]] = [(Event.COMPUTE, i) for i in range(n)]
    inputs: list[tuple[int, ...]] = [(i - 1,) if i else () for i in range(n)]
    for i in reversed(range(n)):
        gradient = 2 * n - 1 - i
        inputs.append((*((i - 1,) if 0 < i < n - 1 else ()), *((gradient - 1,) if i < n - 1 else ())))
        events += [(Event.RELEASE, i), (Event.COMPUTE, gradient)]
        if i < n - 1:
            events.append((Event.RELEASE, gradient - 1))
    kinds, indexes = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return Recording(_graph(n, inputs), (1,) * (2 * n), kinds, indexes, "1 ns for every op")


def _graph(n: int, inputs: Sequence[tuple[int, ...]]) -> Graph:
    """The Graph of ``linear_network``: one tensor per op; what the backward still needs lives until then."""
    calls = tuple(
        Call(f"linear.{name}.default", tuple((f"x{i}", TENSOR) for i in range(count)), count)
        for name in ("forward", "backward")
        for count in range(3)
    )
    ops = tuple(
        Op((0 if i < n else 3) + len(read), read, (i,), Phase.FORWARD if i < n else Phase.BACKWARD)
        for i, read in enumerate(inputs)
    )
    deaths = [*(2 * n - 1 - i for i in range(n)), *(n + k + 2 for k in range(n - 1)), None]
    storages = tuple(
        Storage(1, "cpu", Role.ACTIVATION if i < n else Role.GRADIENT, i, death) for i, death in enumerate(deaths)
    )
    tensors = tuple(Tensor(i, "uint8", (1,), (1,)) for i in range(2 * n))
    return Graph(ops, calls, tensors, storages, meta=Meta(f"linear network of {n} layers"))


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
    saved: Saved | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Growth:
    """Play linear networks of ``sizes`` under the budgets of ``rules`` (keys of RULES) by each of ``policies``.

    Raises PlanError for an unknown rule or policy, and for a network without layers.
    """
    for rule in rules:
        if rule not in RULES:
            raise PlanError(f"there is no budget {rule!r} of n; there are {', '.join(RULES)}")
    for name in policies:
        policy(name)
    subjects = {n: Subject(f"n = {n}", linear_network(n), compat=compat) for n in sizes}
    places = [(n, rule, budget_of(rule, n), name) for n in subjects for rule in rules for name in policies]
    jobs = [(subjects[n], Cell(name, budget, overhead_limit)) for n, _, budget, name in places]
    runs = play_all(jobs, saved=saved, workers=workers, progress=progress)
    points = tuple(GrowthPoint(*place, run) for place, run in zip(places, runs, strict=True))
    return Growth(compat, overhead_limit, tuple(subjects), tuple(rules), tuple(policies), points)


def budget_of(rule: str, n: int) -> int:
    """Bytes that ``rule`` grants a network of ``n`` layers."""
    return math.ceil(RULES[rule](n))
