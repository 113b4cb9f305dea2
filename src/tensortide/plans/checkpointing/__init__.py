"""Recomputation planned ahead: schedules for whoever knows the whole step, to compare online policies with."""

from __future__ import annotations

from tensortide.plans.checkpointing.collapse import static_graph
from tensortide.plans.checkpointing.emit import to_plan
from tensortide.plans.checkpointing.optimum import Optimum, cheapest, heuristics, optimum, unavoidable_bytes
from tensortide.plans.checkpointing.revolve import evaluations, revolve, treeverse
from tensortide.plans.checkpointing.rounding import rounded
from tensortide.plans.checkpointing.segments import (
    candidates,
    checkpoint_all,
    checkpoint_last,
    checkpointed,
    chen_greedy,
    chen_greedy_sweep,
    chen_sqrt,
    no_recompute,
)
from tensortide.plans.checkpointing.stages import Free, Make, StaticPlan, complete, execute, measured, tightened
from tensortide.plans.checkpointing.static import StaticGraph, chain

__all__ = [
    "Free",
    "Make",
    "Optimum",
    "StaticGraph",
    "StaticPlan",
    "candidates",
    "chain",
    "cheapest",
    "checkpoint_all",
    "checkpoint_last",
    "checkpointed",
    "chen_greedy",
    "chen_greedy_sweep",
    "chen_sqrt",
    "complete",
    "evaluations",
    "execute",
    "heuristics",
    "measured",
    "no_recompute",
    "optimum",
    "revolve",
    "rounded",
    "static_graph",
    "tightened",
    "to_plan",
    "treeverse",
    "unavoidable_bytes",
]
