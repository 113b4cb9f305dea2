"""Recomputation planned ahead: schedules for whoever knows the whole step, to compare online policies with."""

from __future__ import annotations

from tensortide.plans.checkpointing.collapse import static_graph
from tensortide.plans.checkpointing.optimum import Optimum, cheapest, optimum, rounded, unavoidable_bytes
from tensortide.plans.checkpointing.revolve import revolve
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
from tensortide.plans.checkpointing.stages import StaticPlan, to_plan
from tensortide.plans.checkpointing.static import StaticGraph, chain

__all__ = [
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
    "no_recompute",
    "optimum",
    "revolve",
    "rounded",
    "static_graph",
    "to_plan",
    "unavoidable_bytes",
]
