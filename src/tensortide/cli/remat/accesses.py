"""``tensortide remat accesses``: how many storages a policy looks at to choose."""

from __future__ import annotations

from tensortide.cli.remat.grid import PlayOptions, Policies, StepOptions, Targets, experiment, words
from tensortide.cli.remat.target import RuleOptions
from tensortide.studies.remat import accesses as designed


def accesses(
    targets: Targets,
    /,
    *,
    policies: Policies = "dtr,dtr-eq,dtr-local",
    steps: StepOptions = StepOptions(),  # noqa: B008
    play: PlayOptions = PlayOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
) -> None:
    """Count the storages that policies look at to choose what to evict: every candidate, and with bounds."""
    lines = designed(words(policies), deallocation=rules.deallocation)
    experiment("accesses", targets, lines, steps, rules, play)
