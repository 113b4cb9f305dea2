"""``tensortide remat contenders``: plans made ahead against online policies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.experiments import Budgets, Limit, name_of, words
from tensortide.cli.remat.target import RuleOptions, recording_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, progress
from tensortide.errors import WorkloadError
from tensortide.studies.remat.budgets import budgets as parse_budgets
from tensortide.studies.remat.budgets import resolved
from tensortide.studies.remat.subject import Subject

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Recording

LAYERS = 10_000
"""Of the longest made-up chain."""


def contenders(
    target: Annotated[str, Parameter(help=f"{TARGET}; or chain:N, N layers of equal cost and size.")],
    /,
    *,
    budgets: Budgets = "1.0:0.3:0.1",
    policies: Annotated[
        str, Parameter(help="Online policies, separated by commas; auto is the best of many at each budget.")
    ] = "dtr-eq,auto",
    limit: Limit = 2.0,
    optimum_time: Annotated[
        float,
        Parameter(
            help="Seconds for each search for an optimum, and each relaxation to be rounded; 0 leaves both out.",
            validator=validators.Number(gte=0),
        ),
    ] = 60.0,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare plans made ahead (Chen, Revolve, Checkmate's optimum) with online policies under the same budgets.

    All are played on the same step and measured alike.
    """
    from tensortide.reports.sections.contenders import document
    from tensortide.studies.remat.comparison import compare as contest

    files.check()
    wanted = parse_budgets(budgets)
    recording = _recording(target, options, times, rules, quiet=out.quiet)
    name = " ".join([name_of(target), *options.set])
    subject = Subject(name, recording, compat=rules.compat, device=rules.device or "")
    with progress(out.quiet) as say:
        found = contest(
            subject,
            resolved(wanted, subject.baseline_bytes),
            words(policies),
            deallocation=rules.deallocation,
            overhead_limit=limit,
            optimum_time_s=optimum_time,
            progress=say,
        )
    made = document(found)
    show(made, out, wrote=files.write(made, table="entries"))


def _recording(
    target: str, options: CaptureOptions, times: TimeOptions, rules: RuleOptions, *, quiet: bool
) -> Recording:
    made_up_chain = re.fullmatch(r"chain:(\d+)", target, re.ASCII)
    if made_up_chain is None:
        return recording_of(target, options, times, rules, quiet=quiet)
    from tensortide.plans.checkpointing.static import chain
    from tensortide.studies.remat.contenders import made_up

    if options != CaptureOptions() or times != TimeOptions():
        raise WorkloadError(f"{target} is made up: it has no settings, and every op of it takes 1 ns")
    if not 1 <= int(made_up_chain[1]) <= LAYERS:
        raise WorkloadError(f"{target}: a chain has 1 to {LAYERS:,} layers")
    return made_up(chain(int(made_up_chain[1])), target)
