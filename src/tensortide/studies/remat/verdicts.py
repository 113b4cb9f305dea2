"""Verdicts of a comparison of strategies: schedules as played, and the budgets that each of them fits."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tensortide.studies.remat.results import Step

__all__ = ["Comparison", "Entry", "Kind", "Point", "Strategy", "Verdict"]

Kind: TypeAlias = Literal["static", "program", "online"]
"""Kinds of strategies: planned without a budget; an integer program for each budget; decided while the step runs."""
Verdict: TypeAlias = Literal["ok", "oom", "thrash", "no fit", "infeasible", "none found"]
"""``ok``: it fits, perhaps beyond the allowed time; ``oom`` and ``thrash``: as the ``Status`` of a run; ``no fit``:
no plan of a static strategy fits; ``infeasible``: a planner has proved that its node model of the step has no plan;
``none found``: it has found none in time."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was played.

    ``detail``: the strategy with its setting, or the policy that was best. ``overhead``: ``clock_ns`` over the time of
    the step without recomputation. ``planned_ns``, ``planned_bytes``: time and peak as its planner has them, where
    there is one.
    """

    detail: str
    clock_ns: int
    peak_bytes: int
    overhead: float
    planned_ns: int | None = None
    planned_bytes: int | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy under a budget: its fastest schedule that fits, if ``verdict`` is ``ok``.

    ``planner_bytes``: the budget that a planner was given. ``bound``: overhead that no schedule in stages has less
    than, whose peak as the planner counts is at most that; ``proved``: the schedule has no more.
    """

    verdict: Verdict
    point: Point | None = None
    planner_bytes: int | None = None
    bound: float | None = None
    proved: bool = False


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """All that was played of one, and what is left of it under each budget. ``skipped``: why nothing was played;
    ``cut``: the sweep of its settings took too long."""

    name: str
    kind: Kind
    points: tuple[Point, ...] = ()
    entries: tuple[Entry, ...] = ()
    skipped: str = ""
    cut: bool = False


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """``strategies`` on ``step``, whose values are ``nodes`` for planners. ``budgets``: bytes and ratio to the peak
    without one, the largest first; ``overhead_limit``: what takes more is not in the contest."""

    step: Step
    nodes: int
    workspace: bool
    overhead_limit: float
    budgets: tuple[tuple[int, float], ...]
    strategies: tuple[Strategy, ...]

    def best_ns(self, budget: int) -> int | None:
        """The least time under the budget of that number; None if nothing fits in the time that is allowed."""
        entries = (strategy.entries[budget] for strategy in self.strategies if strategy.entries)
        points = (entry.point for entry in entries if entry.verdict == "ok" and entry.point is not None)
        return min((p.clock_ns for p in points if p.overhead <= self.overhead_limit), default=None)
