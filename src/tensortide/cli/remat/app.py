"""``tensortide remat``: its verbs."""

from __future__ import annotations

from tensortide.cli.remat.experiments import ablation, accesses, banishing, figures, growth, sweep
from tensortide.cli.remat.simulate import contenders, simulate
from tensortide.cli.verb import family

__all__ = ["remat"]

remat = family(
    "remat", "Evict tensors and recompute them to fit a step into less memory: what it costs, under which policy."
)
for each in (simulate, sweep, contenders, ablation, banishing, accesses, growth, figures):
    remat.command(each)
