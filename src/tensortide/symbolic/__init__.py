"""Costs as formulas in hyperparameters: found by sampling, evaluated, swept, inverted, extrapolated."""

from __future__ import annotations

from tensortide.symbolic.asymptotics import Asymptotics, asymptotics
from tensortide.symbolic.domains import DOMAINS, PPOPP19, Domain, Machine
from tensortide.symbolic.file import load_formulas, save_formulas
from tensortide.symbolic.formulas import QUANTITIES, Formulas
from tensortide.symbolic.invert import Solution, solve
from tensortide.symbolic.projection import Projection, project
from tensortide.symbolic.result import Regime, Row, Symbolic
from tensortide.symbolic.shares import Share, shares
from tensortide.symbolic.sweep import Sweep, geometric, sweep
from tensortide.symbolic.symbolic import symbolic

__all__ = [
    "DOMAINS",
    "PPOPP19",
    "QUANTITIES",
    "Asymptotics",
    "Domain",
    "Formulas",
    "Machine",
    "Projection",
    "Regime",
    "Row",
    "Share",
    "Solution",
    "Sweep",
    "Symbolic",
    "asymptotics",
    "geometric",
    "load_formulas",
    "project",
    "save_formulas",
    "shares",
    "solve",
    "sweep",
    "symbolic",
]
