"""Experiments: many runs of a step, under many budgets by many policies, on all cores and resumable."""

from __future__ import annotations

from tensortide.studies.remat.budgets import Budget, budgets
from tensortide.studies.remat.designs import Line, ablation, accesses, banishing, conduct, contest
from tensortide.studies.remat.grid import Play, play_all
from tensortide.studies.remat.linear import asymptotics
from tensortide.studies.remat.results import Cell, Row, Run, Step, Study, Trial
from tensortide.studies.remat.saved import Saved
from tensortide.studies.remat.subject import Subject

__all__ = [
    "Budget",
    "Cell",
    "Line",
    "Play",
    "Row",
    "Run",
    "Saved",
    "Step",
    "Study",
    "Subject",
    "Trial",
    "ablation",
    "accesses",
    "asymptotics",
    "banishing",
    "budgets",
    "conduct",
    "contest",
    "play_all",
]
