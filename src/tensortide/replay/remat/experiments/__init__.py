"""Experiments: many runs of a step, under many budgets by many policies, on all cores and resumable."""

from __future__ import annotations

from tensortide.replay.remat.experiments.budgets import Budget, budgets
from tensortide.replay.remat.experiments.designs import Line, ablation, accesses, banishing, conduct, contest
from tensortide.replay.remat.experiments.linear import asymptotics
from tensortide.replay.remat.experiments.results import Curve, Experiment, Growth, Row, Run, Study
from tensortide.replay.remat.experiments.saved import Saved
from tensortide.replay.remat.experiments.subject import Subject

__all__ = [
    "Budget",
    "Curve",
    "Experiment",
    "Growth",
    "Line",
    "Row",
    "Run",
    "Saved",
    "Study",
    "Subject",
    "ablation",
    "accesses",
    "asymptotics",
    "banishing",
    "budgets",
    "conduct",
    "contest",
]
