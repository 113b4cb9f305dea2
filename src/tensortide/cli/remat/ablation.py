"""``tensortide remat ablation``: what each part of a policy is worth."""

from __future__ import annotations

from tensortide.cli.remat.grid import PlayOptions, StepOptions, Targets, experiment
from tensortide.cli.remat.target import RuleOptions
from tensortide.studies.remat import ablation as cells


def ablation(
    targets: Targets,
    /,
    *,
    steps: StepOptions = StepOptions(),  # noqa: B008
    play: PlayOptions = PlayOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
) -> None:
    """Compare the sixteen policies that weigh work (in four ways), size and staleness, or leave them out."""
    lines = cells(deallocation=rules.deallocation)
    experiment("ablation", targets, lines, steps, rules, play)
