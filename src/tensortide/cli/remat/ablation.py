"""``tensortide remat ablation``: what each part of a policy is worth."""

from __future__ import annotations

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.grid import (
    BUDGETS,
    Budgets,
    Figure,
    Limit,
    PlayOptions,
    Targets,
    check,
    conducted,
    deliver,
    subjects_of,
)
from tensortide.cli.remat.target import RuleOptions
from tensortide.cli.source import CaptureOptions, OutputOptions
from tensortide.replay.remat.experiments import ablation as cells
from tensortide.replay.remat.experiments import budgets as parse_budgets


def ablation(
    targets: Targets,
    /,
    *,
    budgets: Budgets = BUDGETS,
    limit: Limit = 2.0,
    figure: Figure = None,
    play: PlayOptions = PlayOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare the sixteen policies that weigh work (in four ways), size and staleness, or leave them out.

    --figure FILE draws one figure for each way to weigh work: FILE-e, FILE-eq, FILE-local, FILE-one.
    """
    from tensortide.report.remat.pareto import ablation_figures, ablation_paths

    drawn = [path for whole in check(play, figure) for path in ablation_paths(whole)]
    wanted = parse_budgets(budgets)
    subjects = subjects_of(targets, options, times, rules, quiet=out.quiet)
    lines = cells(deallocation=rules.deallocation)
    found = conducted("ablation", subjects, lines, wanted, limit, play, quiet=out.quiet)
    if figure is not None:
        ablation_figures(found, figure)
    deliver(found, play, drawn, out)
