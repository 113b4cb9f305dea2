"""Costs as formulas in hyperparameters: found by sampling, evaluated, swept, inverted, extrapolated."""

from __future__ import annotations

from tensortide.formulas.asymptotics import Asymptotics, asymptotics
from tensortide.formulas.confirm import confirm
from tensortide.formulas.derive import symbolic
from tensortide.formulas.formulas import Formulas, Partial, Threshold
from tensortide.formulas.formulas_file import load_formulas, save_formulas
from tensortide.formulas.invert import solve
from tensortide.formulas.projection import DOMAINS, PPOPP19, Domain, Projection, project
from tensortide.formulas.quantities import QUANTITIES
from tensortide.formulas.result import Regime, Row, Symbolic
from tensortide.formulas.shares import Share, shares
from tensortide.formulas.solution import Solution
from tensortide.formulas.sweep import Sweep, geometric, sweep

__all__ = [
    "DOMAINS",
    "PPOPP19",
    "QUANTITIES",
    "Asymptotics",
    "Domain",
    "Formulas",
    "Partial",
    "Projection",
    "Regime",
    "Row",
    "Share",
    "Solution",
    "Sweep",
    "Symbolic",
    "Threshold",
    "asymptotics",
    "confirm",
    "geometric",
    "load_formulas",
    "project",
    "save_formulas",
    "shares",
    "solve",
    "sweep",
    "symbolic",
]
