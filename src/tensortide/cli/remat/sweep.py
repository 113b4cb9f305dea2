"""``tensortide remat sweep``: time against memory, for several policies."""

from __future__ import annotations

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.grid import (
    POLICY_LIST,
    GridOptions,
    PlayOptions,
    Policies,
    Targets,
    check,
    conducted,
    deliver,
    subjects_of,
    words,
)
from tensortide.cli.remat.target import RuleOptions
from tensortide.cli.source import CaptureOptions, OutputOptions
from tensortide.studies.remat import budgets as parse_budgets
from tensortide.studies.remat import contest


def sweep(
    targets: Targets,
    /,
    *,
    grid: GridOptions = GridOptions(),  # noqa: B008
    policies: Policies = POLICY_LIST,
    play: PlayOptions = PlayOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Play a step under a range of memory budgets by several policies: what recomputation costs, and where it ends."""
    from tensortide.reports.remat.pareto import pareto_figure

    drawn = check(play)
    wanted = parse_budgets(grid.budgets)
    lines = contest(words(policies), deallocation=rules.deallocation)
    subjects = subjects_of(targets, options, times, rules, quiet=out.quiet)
    found = conducted("sweep", subjects, lines, wanted, grid.limit, play, quiet=out.quiet)
    for path in drawn:
        pareto_figure(found, path)
    deliver(found, play, drawn, out)
