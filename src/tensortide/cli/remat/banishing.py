"""``tensortide remat banishing``: what becomes of storages that the program drops."""

from __future__ import annotations

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.grid import (
    GridOptions,
    PlayOptions,
    StepRules,
    Targets,
    check,
    conducted,
    deliver,
    subjects_of,
)
from tensortide.cli.source import CaptureOptions, OutputOptions
from tensortide.studies.remat import banishing as lines
from tensortide.studies.remat import budgets as parse_budgets


def banishing(
    targets: Targets,
    /,
    *,
    grid: GridOptions = GridOptions(),  # noqa: B008
    play: PlayOptions = PlayOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: StepRules = StepRules(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare what is done when the program drops a tensor: free it for good, evict it, or never hear of it."""
    from tensortide.reports.remat.pareto import pareto_figure

    drawn = check(play)
    wanted = parse_budgets(grid.budgets)
    subjects = subjects_of(targets, options, times, rules, quiet=out.quiet)
    found = conducted("banishing", subjects, lines(), wanted, grid.limit, play, quiet=out.quiet)
    for path in drawn:
        pareto_figure(found, path)
    deliver(found, play, drawn, out)
