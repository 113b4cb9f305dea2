"""``tensortide remat banishing``: what becomes of storages that the program drops."""

from __future__ import annotations

from tensortide.cli.remat.grid import PlayOptions, StepOptions, Targets, experiment
from tensortide.cli.remat.target import StepRules
from tensortide.studies.remat import banishing as designed


def banishing(
    targets: Targets,
    /,
    *,
    steps: StepOptions = StepOptions(),  # noqa: B008
    play: PlayOptions = PlayOptions(),  # noqa: B008
    rules: StepRules = StepRules(),  # noqa: B008
) -> None:
    """Compare the ways to handle a released tensor: free it for good, evict it, or ignore the release."""
    lines = designed()
    experiment("banishing", targets, lines, steps, rules, play)
