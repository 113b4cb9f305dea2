"""``tensortide remat``: its verbs."""

from __future__ import annotations

from cyclopts import App

from tensortide.cli.remat.experiments import ablation, accesses, banishing, figures, growth, sweep
from tensortide.cli.remat.simulate import contenders, simulate

__all__ = ["remat"]

remat = App(
    name="remat",
    help="Evict tensors and recompute them to fit a step into less memory: what it costs, under which policy.",
    help_format="plaintext",
)
for each in (simulate, sweep, contenders, ablation, banishing, accesses, growth, figures):
    remat.command(each)
