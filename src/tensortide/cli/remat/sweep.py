"""``tensortide remat sweep``: time against memory, for several policies."""

from __future__ import annotations

from tensortide.cli.remat.grid import POLICY_LIST, PlayOptions, Policies, StepOptions, Targets, experiment, words
from tensortide.cli.remat.target import RuleOptions
from tensortide.studies.remat import contest


def sweep(
    targets: Targets,
    /,
    *,
    policies: Policies = POLICY_LIST,
    steps: StepOptions = StepOptions(),  # noqa: B008
    play: PlayOptions = PlayOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
) -> None:
    """Play a step under a range of memory budgets by several policies: what recomputation costs, and where it ends."""
    lines = contest(words(policies), deallocation=rules.deallocation)
    experiment("sweep", targets, lines, steps, rules, play)
