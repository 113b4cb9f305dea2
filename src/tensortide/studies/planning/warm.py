"""Compilation of the searches before the clock of a time limit runs."""

from __future__ import annotations

import functools
from fractions import Fraction

from tensortide.compiled import IS_COMPILED
from tensortide.replays.g10 import G10Machine, outcomes, trace_of
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.recomputation import without_links
from tensortide.studies.planning.with_links import with_links
from tensortide.studies.remat.linear import linear_network
from tensortide.timing.links import Link

_LAYERS, _BUDGET = 30, 8
"""A step whose plan takes every function of the searches."""


@functools.cache
def warm_up(*, moves: bool) -> None:
    """Compile the functions that a search calls, with transfers if it ``moves``; those on disk are loaded instead.

    The first time on a machine that takes up to a minute; it is not part of anybody's time limit.
    """
    if not IS_COMPILED:
        return
    links = (Link("host", Fraction(10**9), 10),) if moves else ()
    step = linear_network(_LAYERS)
    device = step.graph.index.main_device
    problem = Problem(recording=step, device=device, budget_bytes=_BUDGET, links=links, effort=0.01)
    if moves:
        with_links(problem)
    else:
        without_links(problem)


@functools.cache
def warm_up_policies() -> None:
    """Compile the functions that G10's policies call beside those of a search with transfers."""
    if not IS_COMPILED:
        return
    warm_up(moves=True)
    step = linear_network(_LAYERS)
    outcomes(trace_of(step.graph, step.durations_ns), G10Machine(), ("g10",))
