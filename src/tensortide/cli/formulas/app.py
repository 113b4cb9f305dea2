"""``tensortide formulas``: verbs by name."""

from __future__ import annotations

from cyclopts import App

from tensortide.cli.formulas.growth import growth
from tensortide.cli.formulas.project import project
from tensortide.cli.formulas.show import show
from tensortide.cli.formulas.solve import solve
from tensortide.cli.formulas.sweep import sweep

__all__ = ["formulas"]

formulas = App(
    name="formulas",
    help="Find a step's costs as formulas in its hyperparameters; tabulate, solve and extrapolate them.",
    help_format="plaintext",
)
for verb in (show, sweep, solve, growth, project):
    formulas.command(verb)
