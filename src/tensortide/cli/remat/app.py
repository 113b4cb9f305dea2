"""``tensortide remat``: what fits into less memory when tensors are evicted and recomputed."""

from __future__ import annotations

from cyclopts import App

from tensortide.cli.remat.contenders import contenders
from tensortide.cli.remat.experiments import ablation, accesses, banishing, growth, sweep
from tensortide.cli.remat.figures import figures
from tensortide.cli.remat.simulate import simulate

remat = App(
    name="remat",
    help="Evict tensors and recompute them to fit a step into less memory: what it costs, under which policy.",
    help_format="plaintext",
)

for verb in (simulate, sweep, contenders, ablation, banishing, accesses, growth, figures):
    remat.command(verb)
