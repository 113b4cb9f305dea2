"""``tensortide remat growth``: what is recomputed as a network grows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.remat.experiments import Limit, PlayOptions, words
from tensortide.cli.show import show
from tensortide.cli.source import option
from tensortide.errors import PlanError
from tensortide.plans.remat.policies import contenders
from tensortide.replays.remat import Simulator
from tensortide.studies.remat import Study, asymptotics
from tensortide.studies.remat.linear import LIMIT, RULES, budget_of, linear_network

SIZES = "16,32,64,128,256,512"
RULE_LIST = "n/2,2sqrt,sqrt+3,log2"
POLICIES = ",".join(contenders(seeded=False))
LARGEST_MAP = 128
MOST = 100_000


def growth(
    *,
    sizes: Annotated[str, Parameter(help="Numbers of layers.")] = SIZES,
    budgets: Annotated[str, Parameter(help=f"Budgets as functions of them: {', '.join(RULES)}.")] = RULE_LIST,
    policies: Annotated[str, Parameter(help="Policies, separated by commas.")] = POLICIES,
    limit: Limit = LIMIT,
    compat: Annotated[bool, option("--compat", "Play by the rules of DTR's own simulator (docs/remat.md).")] = False,
    heatmap: Annotated[
        Path | None, option("--heatmap", "Draw which tensor is resident when, for one length (.png, .svg, .pdf).")
    ] = None,
    play: PlayOptions = PlayOptions(),  # noqa: B008
) -> None:
    """Count the recomputed ops in linear networks of growing length, against what Chen et al. and Griewank need.

    --heatmap draws the first policy, on the longest network of at most 128 layers.
    """
    from tensortide.reports.render.figure import check_figure
    from tensortide.reports.sections.experiments import document

    play.files.check()
    lengths, rules, names = lengths_of(sizes), words(budgets), words(policies)
    if heatmap is not None:
        check_figure(heatmap)
    with play.playing() as playing:
        found = asymptotics(lengths, rules, names, compat=compat, overhead_limit=limit, play=playing)
    made = document(found)
    wrote = play.files.write(made, table="runs")
    if heatmap is not None:
        wrote.append(draw_heatmap(found, heatmap))
    show(made, play.out, wrote=wrote)


def lengths_of(text: str) -> list[int]:
    """Read whole numbers above 0, and sort them. Raises PlanError for anything else."""
    parts = words(text)
    if not parts or not all(part.isdecimal() and 0 < int(part) <= MOST for part in parts):
        raise PlanError(f"--sizes takes numbers of layers from 1 to {MOST:,}, as in {SIZES}, not {text!r}")
    return sorted({int(part) for part in parts})


def draw_heatmap(growth: Study, path: Path) -> Path:
    """Draw which tensor is resident when, a panel for each budget of ``growth``."""
    from tensortide.reports.render.figure import render_figure
    from tensortide.reports.sections.experiments import residency_document

    sizes = [int(trial.at) for trial in growth.trials]
    n = max((n for n in sizes if n <= LARGEST_MAP), default=min(sizes))
    simulator, name = Simulator(linear_network(n), compat=growth.compat), growth.trials[0].cell.policy
    runs = []
    for rule in growth.panels:
        run = simulator.run(name, budget_of(rule, n), overhead_limit=growth.overhead_limit)
        failed = "" if run.status == "ok" else f" ({run.status})"
        runs.append((f"{name}, {n} layers, {RULES[rule][0]}{failed}", run))
    return render_figure(residency_document(runs), path)
