"""``tensortide remat accesses``: how much a policy looks at to choose."""

from __future__ import annotations

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.grid import (
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
from tensortide.studies.remat import accesses as lines
from tensortide.studies.remat import budgets as parse_budgets


def accesses(
    targets: Targets,
    /,
    *,
    grid: GridOptions = GridOptions(),  # noqa: B008
    policies: Policies = "dtr,dtr-eq,dtr-local",
    play: PlayOptions = PlayOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Count the storages that policies look at to choose what to evict: every candidate, and with bounds."""
    from tensortide.reports.remat.accesses import accesses_figure

    drawn = check(play)
    wanted = parse_budgets(grid.budgets)
    several = lines(words(policies), deallocation=rules.deallocation)
    subjects = subjects_of(targets, options, times, rules, quiet=out.quiet)
    found = conducted("accesses", subjects, several, wanted, grid.limit, play, quiet=out.quiet)
    for path in drawn:
        accesses_figure(found, path)
    deliver(found, play, drawn, out)
