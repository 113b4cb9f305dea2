"""``tensortide remat ablation``: what each part of a policy is worth."""

from __future__ import annotations

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.grid import (
    GridOptions,
    PlayOptions,
    Targets,
    check,
    conducted,
    deliver,
    subjects_of,
)
from tensortide.cli.remat.target import RuleOptions
from tensortide.cli.source import CaptureOptions, OutputOptions
from tensortide.studies.remat import ablation as cells
from tensortide.studies.remat import budgets as parse_budgets


def ablation(
    targets: Targets,
    /,
    *,
    grid: GridOptions = GridOptions(),  # noqa: B008
    play: PlayOptions = PlayOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare the sixteen policies that weigh work (in four ways), size and staleness, or leave them out.

    --figure FILE draws one figure for each way to weigh work: FILE-e, FILE-eq, FILE-local, FILE-one.
    """
    from tensortide.reports.remat.pareto import ablation_figures, ablation_paths

    drawn = [path for whole in check(play) for path in ablation_paths(whole)]
    wanted = parse_budgets(grid.budgets)
    subjects = subjects_of(targets, options, times, rules, quiet=out.quiet)
    lines = cells(deallocation=rules.deallocation)
    found = conducted("ablation", subjects, lines, wanted, grid.limit, play, quiet=out.quiet)
    if play.figure is not None:
        ablation_figures(found, play.figure)
    deliver(found, play, drawn, out)
